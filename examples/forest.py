"""Each tree of a random forest is a member: uncertainty without PyTorch.

A forest learns the digits 0 to 7 of scikit-learn's 8 x 8 images. Pure leaves predict probabilities of 0 and
1, so that K is infinite wherever two trees disagree; a prior in the leaves makes it finite. Needs
scikit-learn: `pip install "demur[report]"`.

Run: python examples/forest.py
"""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import demur
from demur.posteriors import Forest


def main():
    """Print how many inputs have an infinite K, and the AUROC by K and I, with and without a prior."""
    images, digits = load_digits(return_X_y=True)
    known = digits < 8
    x, y = images[known], digits[known]
    forest = RandomForestClassifier(100, random_state=0).fit(x[:1000], y[:1000])
    test, unknown = [(x[1000:], y[1000:])], [images[~known]]

    # Without a prior demur warns, and says how many inputs have an infinite K; so do we, below.
    warnings.filterwarnings("ignore", "The epistemic part is infinite")
    for prior in (0.0, 1.0):
        posterior = Forest(forest, prior=prior)
        scores, strange = demur.score(posterior, test), demur.score(posterior, unknown)
        infinite = np.isinf(scores["pairwise"].epistemic).mean()
        print(f"prior {prior}: accuracy {scores.correct.mean():.3f}, K infinite for {infinite:.0%} of digits")
        for measure, name in (("pairwise", "K"), ("average", "I")):
            found = demur.tasks.detection(scores[measure].epistemic, strange[measure].epistemic)
            print(f"  AUROC of 8 and 9 against the others by {name}: {found.auroc}")


if __name__ == "__main__":
    main()
