"""Write a posterior of your own: the Bayesian bootstrap of a logistic regression.

Each member is fitted to the same digits under random weights (Rubin, 1981). `demur.score` asks a posterior
for two things: how many members it has, and what they predict for a batch. Needs scikit-learn: `pip install
"demur[report]"`.

Run: python examples/own_posterior.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import demur
from demur.posteriors import Posterior


class BayesianBootstrap(Posterior):
    """Logistic regressions, each fitted under weights of its own."""

    def __init__(self, x, y, *, members=20, seed=0):
        self.members, self.seed = members, seed
        self.classes = np.unique(y)  # the label of each column
        rng = np.random.default_rng(seed)
        fits = [
            LogisticRegression(C=0.5, max_iter=2000).fit(x, y, sample_weight=rng.exponential(size=len(y)))
            for _ in range(members)
        ]
        self.slopes = np.stack([fit.coef_.T for fit in fits])  # (members, features, classes)
        self.intercepts = np.stack([fit.intercept_ for fit in fits])[:, None]

    def predict(self, batch, *, members=None, position=0):
        """Yield logits (members, inputs, classes); one chunk will do, since it is small."""
        chosen = slice(None) if members is None else slice(members.start, members.stop)
        yield batch @ self.slopes[chosen] + self.intercepts[chosen]

    def deployed(self, batch):
        """Return the logits of the one model that would be deployed: here the average regression."""
        return batch @ self.slopes.mean(axis=0) + self.intercepts.mean(axis=0)


def main():
    """Print the accuracy, how well K tells unknown digits, and that the order of the work does not matter."""
    images, digits = load_digits(return_X_y=True)
    images = images / 16
    known = digits < 8
    x, y = images[known], digits[known]
    posterior = BayesianBootstrap(x[:1000], y[:1000])
    test, unknown = [(x[1000:], y[1000:])], [images[~known]]

    scores = demur.score(posterior, test, measures=["pairwise", "A3"])
    strange = demur.score(posterior, unknown, measures=["pairwise", "A3"])
    print(f"{scores.members} members, accuracy {scores.correct.mean():.3f}")
    for measure, name in (("pairwise", "K"), ("A3", "the deployed model against the members")):
        found = demur.tasks.detection(scores[measure].epistemic, strange[measure].epistemic)
        print(f"AUROC of 8 and 9 against the others by {name}: {found.auroc}")

    again = demur.score(posterior, test, measures=["pairwise"], order="member")
    same = np.allclose(again["pairwise"].epistemic, scores["pairwise"].epistemic, rtol=1e-9)
    print("member by member:", "the same scores" if same else "other scores")


if __name__ == "__main__":
    main()
