"""What posteriors that sample by dropout share.

    layers          which layers of a network drop, and whether a pass really samples
    shared_prefix   runs the layers before the first dropout once for all members
    masks           which features each member drops, for each input
    compiled_masks  the same masks from compiled loops

`MCDropout` uses the first two, `LastLayer` the others.
"""
