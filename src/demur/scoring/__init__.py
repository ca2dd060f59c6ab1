"""Scoring: a posterior and a data set, or files of predictions, to the uncertainty of each input.

    score         `demur.score`: a posterior and a loader in, `Scores` out
    scores        `Scores`, the result; scores_text prints it, saved_scores reads it from files
    scores_so_far the scores of the batches done so far
    job           what one call of `demur.score` was asked for, checked before the work
    by_batch      order="batch": all members for one batch, then the next batch
    by_member     order="member": one member, or a few, for the whole data set, then the next
    adaptive      tolerance=...: when an input has enough members
    logit_spread  known spreads of logits, which make scores from few members steadier
    held_members  members of a batch that cannot be summed as they come
    outcomes      what the average predicts, and whether that is right
    batches       batches from any loader; batch_parts takes one apart: inputs, labels, ids
    checkpoint    what a run has done so far, in a file
    score_files   `demur score`: predictions in files, tile by tile
    file_maps     `demur score --maps`: predictions of pixels in files, image by image
    score_table   the columns of scores, however they were computed

The posteriors are in `demur.posteriors`; any iterable of batches is a loader.
"""
