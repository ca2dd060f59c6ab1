"""The demo: the whole workflow on handwritten digits, from training to the report.

digits    the images, and a small network
flow      fit, score, evaluate, write
figures   the figures
"""

from demur.reproduce.studies.digits_demo.flow import METHODS, SETS, DemoResults, run_demo

__all__ = ["METHODS", "SETS", "DemoResults", "run_demo"]
