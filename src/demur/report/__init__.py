"""Figures and pages: they draw what others computed, and compute nothing."""
