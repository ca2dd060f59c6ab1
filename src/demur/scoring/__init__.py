"""Scoring: a posterior and a data set, or files of predictions, to the uncertainty of each input.

    score         `demur.score`: a posterior and a loader in, `Scores` out
    scores        `Scores`, the result, and the scores of the batches done so far
    job           what one call of `demur.score` was asked for, checked before the work
    by_batch      order="batch": all members for one batch, then the next batch
    by_member     order="member": one member, or a few, for the whole data set, then the next
    adaptive      tolerance=...: when an input has enough members
    logit_spread  known spreads of logits, which make scores from few members steadier
    batches       inputs, labels and ids from any loader
    checkpoint    what a run has done so far, in a file
    score_files   `demur score`: predictions in files, tile by tile
    score_table   the columns of scores, however they were computed

The posteriors are in `demur.posteriors`; any iterable of batches is a loader.
"""
