"""What `SWAG` and `MultiSWAG` share.

    moments        mean, variance and last deviations of the iterates of SGD, and draws from their Gaussian
    batch_norm     statistics of batch-norm layers for given parameters, and those of all members
    descent        SGD with a constant learning rate, whose iterates are collected
    packing        all of it as tensors by name, for a file

The methods themselves are one file each, one folder up.
"""
