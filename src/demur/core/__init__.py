"""The one formula: rules, sums over members, given sides, the jackknife, distributions over predictions."""
