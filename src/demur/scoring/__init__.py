"""A posterior, or files of predictions, through to the scores of each input."""
