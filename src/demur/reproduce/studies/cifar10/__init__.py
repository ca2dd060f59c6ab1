"""The CIFAR-10 study: others' full-batch HMC as the judge of ensembles, SWAG and cSG-HMC with its network.

inputs      images, and the reference's predictions
methods     schedules, and how each method is fitted
judging     figures of merit: average predictions against the reference's
section     the section of the results page
study       the stages put together
"""

from demur.reproduce.studies.cifar10.methods import Schedules, choose_schedules
from demur.reproduce.studies.cifar10.study import describe_study

__all__ = ["Schedules", "choose_schedules", "describe_study"]
