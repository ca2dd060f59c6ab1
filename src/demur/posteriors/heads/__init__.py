"""What posteriors of the last layer share; a head is one last layer among many.

    features           the input of the last layer, computed once for a data set and cached in a folder
    training           trains heads, several at a time: `HeadTraining`
    parameters         finds the last layer of a network; reads and checks heads
    logits             products of features with heads, or with a last layer after dropout
    compiled_products  such products in compiled loops, for few classes
    plain_products     the same products by NumPy, to the last bit

`LastLayer` itself is one folder up.
"""
