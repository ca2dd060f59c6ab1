"""The inference study: which method's K, I and M can be believed, judged by long HMC.

config          the settings, from TOML
problems        training, test and out-of-distribution inputs, drawn anew for each seed
networks        the network of all methods, its likelihood, prior and training
methods         the table of methods: how each is fitted, what it targets, what it costs
predictions     what is kept of a fitted method: its average, and K, I, M and total of each input
fidelity        figures of merit: one method's predictions against the reference's
tables          means over seeds, with intervals
figures         ratio and rank correlation of K, by method
section         the section of the results page
study           the stages put together
"""

from demur.reproduce.studies.inference.config import read_config
from demur.reproduce.studies.inference.study import describe_study

__all__ = ["describe_study", "read_config"]
