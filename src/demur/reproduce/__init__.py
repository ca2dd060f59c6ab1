"""Studies that others can repeat: what ``demur reproduce`` and ``demur demo`` run.

stages         steps of a study, kept on disk under a key of what they depend on
runner         plans, runs and resumes any study in stages, and lays out its results
results_page   docs/results.md, one section per study
records        tables as lists of records
markdown       pieces of the sections
data/          readers of data sets
networks/      networks, and running images through them
studies/       the studies
"""
