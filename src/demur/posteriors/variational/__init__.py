"""What `BayesByBackprop` is made of.

    mean_field     a Gaussian with one mean and one scale per parameter, its entropy and its draws
    priors         a Gaussian, and the scale mixture of Blundell et al.
    local_layers   linear and convolutional layers that draw their outputs instead of their weights
    objective      the loss of a batch, whose average is the negative evidence lower bound

The method itself is one folder up.
"""
