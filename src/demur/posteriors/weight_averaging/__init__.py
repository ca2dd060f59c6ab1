"""What `SWAG` and `MultiSWAG` share.

    moments        mean, variance and last deviations of the iterates of SGD, and draws from their Gaussian
    batch_norm     statistics of batch-norm layers for given parameters
    descent        SGD with a constant learning rate, whose iterates are collected

The methods themselves are one file each, one folder up.
"""
