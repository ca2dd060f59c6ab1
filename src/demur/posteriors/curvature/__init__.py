"""What `Laplace` is made of: the curvature of the loss, a prior, and draws from the Gaussian of both.

    last_layer      sums of the generalised Gauss-Newton matrix of a last layer
    whole_network   sums of its diagonal, over all parameters of a network
    accumulating    the pass over the data that adds them up, resumed after an interruption
    decomposed      the finished matrix by eigenvalues: Kronecker, full or diagonal
    evidence        the marginal likelihood, and the prior precision and noise that maximise it
    draws           heads and parameters drawn from the Gaussian, member by member

`Laplace` itself is one folder up.
"""
