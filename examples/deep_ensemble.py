"""Fit a deep ensemble in parallel with your own training function, and detect digits it has never seen.

Five small networks learn the digits 0 to 7 of scikit-learn's 8 x 8 images. Each is written to a folder once
it is trained: stop the script and run it again, and it trains only the missing members. Needs PyTorch and
scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/deep_ensemble.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import DeepEnsemble

MEMBERS = 5
FOLDER = "digits-ensemble"


def load():
    """Return training images and labels, test images and labels, and images of the digits left out."""
    images, digits = load_digits(return_X_y=True)
    images = torch.from_numpy((images / 16).astype(np.float32))
    known = digits < 8
    x, y = images[known], torch.from_numpy(digits[known])
    return (x[:1000], y[:1000]), (x[1000:], y[1000:]), images[~known]


def factory():
    """Return an untrained network; the random generators are seeded for the member."""
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))


def train(model, member):
    """Train one member: any loop will do."""
    (x, y), _, _ = load()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(10):
        for some in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[some]), y[some]).backward()
            optimizer.step()


def main():
    """Print accuracy, and how well the members' disagreement detects the unknown digits."""
    # Other processes import this file, so that work starts only under `if __name__ == "__main__"`.
    ensemble = DeepEnsemble.fit(factory, train, MEMBERS, folder=FOLDER)
    _, test, unknown = load()
    known = demur.score(ensemble, [test])
    strange = demur.score(ensemble, [unknown])
    print(f"{ensemble} in {FOLDER}/: accuracy {known.correct.mean():.3f}")
    for measure, name in (("pairwise", "K"), ("average", "I")):
        found = demur.tasks.detection(known[measure].epistemic, strange[measure].epistemic)
        print(f"AUROC of 8 and 9 against the others by {name}: {found.auroc}")


if __name__ == "__main__":
    main()
