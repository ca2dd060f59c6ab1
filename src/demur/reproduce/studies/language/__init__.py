"""The language study: what K, I and M of language models are good for, on texts and recorded answers.

config            the settings, from TOML
text_files        texts, and folders of models; recorded_answers: those of large models
training          members trained from new weights
token_scores      the scores of every token of a set of texts; detection: what these are good for
limits            what lists of the likeliest tokens certify
answers           which recorded answers are wrong; promises: what a deferral promises and keeps
figures, section  the figure, and the section of the results page
study             the stages put together
"""

from demur.reproduce.studies.language.config import read_config
from demur.reproduce.studies.language.study import describe_study

__all__ = ["describe_study", "read_config"]
