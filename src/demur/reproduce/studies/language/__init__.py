"""The language study: what K, I and M of language models are good for, on texts and recorded answers.

config            the settings, from TOML
text_files        texts, and folders of models; recorded_answers: those of large models
training          members trained from new weights
token_scores      the scores of every token of a set of texts; detection: what these are good for
character_models  models of characters from a file; specialists: a mixture of them, each of another kind
limits            what lists of the likeliest tokens certify
answers           which recorded answers are wrong; promises: what a deferral promises and keeps
figures, section  the figures, and the section of the results page; specialists_section: a part of it
study             the stages put together
"""

from demur.reproduce.studies.language.config import read_config
from demur.reproduce.studies.language.study import describe_study

__all__ = ["describe_study", "read_config"]
