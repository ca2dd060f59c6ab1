"""The studies, one module or package each.

bernoulli         posteriors over the parameter of a coin
digits_demo       the whole workflow on handwritten digits
paper_tables      the paper's tables 1 and 2
precision         how much of the gap between K and I is rounding
regression        which score ranks the errors of predicted numbers
active_learning   which score should choose what is labelled next
"""
