"""Active learning: which score should choose what is labelled next, on MNIST and Fashion-MNIST.

Every seed has a pool of its own, of which a few images are labelled at the start. In each round an
acquisition asks for more labels, by what the members predict for the pool, and new members are fitted to
everything labelled so far. All acquisitions of a seed start from the same images, the same members and the
same random numbers.

study         settings, and the stages put together
pools         the pool and the test images of a seed
networks      a small convolutional network, and the ways to make members of it
rounds        one curve: ask for labels, fit again, test
comparisons   areas under the curves, and paired tests between acquisitions
tables        tables, figures and text of all curves
figures       the pictures
section       the section of the results page
"""

from demur.reproduce.studies.active_learning.study import Settings, describe_study

__all__ = ["Settings", "describe_study"]
