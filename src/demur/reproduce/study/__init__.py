"""The paper's tables as a study: from inputs and networks to scores, tables and a report.

config       settings, from TOML
inputs       which rows of which file are which set
networks     networks that are trained here or taken from a file
encoding     stages: features, last layers, logits
methods      stages: last layers are fitted; posteriors
scoring      stages: scores of every set by every method
evaluation   splits, tables, paired tests, every cell, labels of people
section      the page of results
study        the stages put together
"""

from demur.reproduce.study.config import Config, names, read_config
from demur.reproduce.study.section import section
from demur.reproduce.study.study import Study

__all__ = ["Config", "Study", "names", "read_config", "section"]
