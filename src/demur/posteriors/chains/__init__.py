"""What the Markov-chain samplers (SGLD, SGHMC, cyclical SG-HMC) share.

    markov_chain    `MarkovChain`, their base class: draws, keeps and applies samples
    stepper         moves the parameters, one step after the other
    schedule        step sizes, cycles, and the steps at which samples are taken
    minibatches     the training batch of any step
    gradients       the log-likelihood of a batch and its gradient
    compiled_steps  a whole step with its Gaussian noise, in compiled loops
    plain_steps     the same step by NumPy, to the last bit
    checkpoint      the folder that an interrupted chain resumes from

The samplers themselves are one file each, one folder up.
"""
