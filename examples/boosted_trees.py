"""Boosted trees: the stages of one model, or several models, as members.

LightGBM learns the digits 0 to 7 of scikit-learn's 8 x 8 images. Needs LightGBM and scikit-learn:
`pip install "demur[report]" lightgbm`.

Run: python examples/boosted_trees.py
"""

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_digits

import demur
from demur.posteriors import BoostedTrees


def fit(x, y, seed):
    """Return a model that was fitted to a bootstrap sample; all of the inputs for seed 0."""
    rows = np.random.default_rng(seed).integers(0, len(x), len(x)) if seed else np.arange(len(x))
    model = LGBMClassifier(n_estimators=60, num_leaves=8, learning_rate=0.15, n_jobs=1, verbose=-1)
    return model.fit(x[rows], y[rows])


def main():
    """Print accuracy, mean K, and how well K and the total find the digits 8 and 9."""
    images, digits = load_digits(return_X_y=True)
    known = digits < 8
    x, y = images[known], digits[known]
    models = [fit(x[:1000], y[:1000], seed) for seed in range(6)]
    for posterior in (BoostedTrees(models[0]), BoostedTrees(models[1:])):
        scores = demur.score(posterior, [(x[1000:], y[1000:])])
        strange = demur.score(posterior, [images[~known]])
        u, v = scores["pairwise"], strange["pairwise"]
        print(f"{posterior}: accuracy {scores.correct.mean():.3f}, mean K {u.epistemic.mean():.3f} nats")
        for part in ("epistemic", "total"):
            found = demur.tasks.detection(getattr(u, part), getattr(v, part))
            print(f"  AUROC of 8 and 9 against the others by the {part} part: {found.auroc}")


if __name__ == "__main__":
    main()
