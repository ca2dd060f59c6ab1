"""The paper's tables as a study: from inputs and networks to scores, tables and a report.

config              settings, from TOML
configs/            the settings that come with demur
input_sets          which rows of which file belong to which set
trained_networks    networks that are trained here or read from a file
encoding_stages     stages: features, last layers, logits
methods             stages: last layers are fitted; posteriors
scoring_stages      stages: scores of every set by every method
compared_methods    stages: scores of methods that are only compared: QUAM, one pass
one_pass_networks   stages: networks that SNGP, DUQ and DUE train, and their scores
method_comparison   every method against one of them
evaluation          splits, tables, paired tests, every cell, labels from people
people_labels       the entropy of labels from people
published_figures   the figures of the paper
section             the section of the results page
pipeline            the stages put together
"""

from demur.reproduce.studies.paper_tables.config import TablesConfig, list_configs, read_config
from demur.reproduce.studies.paper_tables.pipeline import TablesPipeline

__all__ = ["TablesConfig", "TablesPipeline", "list_configs", "read_config"]
