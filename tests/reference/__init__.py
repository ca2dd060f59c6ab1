"""Slow, obvious versions that the tests compare demur with. Nothing here imports demur."""
