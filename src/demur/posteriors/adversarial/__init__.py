"""The search for adversarial models, which `QUAM` runs for each input.

plan            how a search moves: steps, step sizes, penalty; and what it found
head_search     searches last layers, those of all target classes at once
network_search  searches all parameters of a network, one target class at a time
saving          training data and settings as tensors and facts of a file
"""
