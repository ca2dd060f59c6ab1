"""One network, many last layers: compute features once, then use an ensemble of heads, or dropout.

A small network learns the digits 0 to 7 of scikit-learn's 8 x 8 images. The input of its last layer is cached
in a folder. Ten last layers are trained on it (DE (LL)), and MC dropout of the last layer draws 200 members.
Needs PyTorch and scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/last_layer.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import HeadTraining, LastLayer, features

HEADS = 10


def train(x, y):
    """Train a network with an ordinary loop."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def main():
    """Print accuracy, and how well heads and dropout each detect the unknown digits."""
    images, digits = load_digits(return_X_y=True)
    images = torch.from_numpy((images / 16).astype(np.float32))
    known = digits < 8
    x, y = images[known], torch.from_numpy(digits[known])
    model = train(x[:1000], y[:1000])

    # The network runs once over each set; a second run of this script reads the features from the cache.
    sets = {"train": [(x[:1000], y[:1000])], "test": [(x[1000:], y[1000:])], "unknown": [images[~known]]}
    cached = {
        name: features(model, batches, cache=f"digits-features/{name}") for name, batches in sets.items()
    }
    print(cached["train"])

    training = HeadTraining(epochs=30, rate=0.01)
    heads = LastLayer.fit(
        cached["train"].layer, cached["train"], HEADS, training=training, path="heads.safetensors"
    )
    dropout = LastLayer(cached["train"].layer, dropout=0.2, samples=200)
    for posterior in (heads, dropout):
        scores = demur.score(posterior, cached["test"])
        strange = demur.score(posterior, cached["unknown"])
        found = demur.tasks.detection(scores["pairwise"].epistemic, strange["pairwise"].epistemic)
        print(f"{posterior}: accuracy {scores.correct.mean():.3f}, AUROC of 8 and 9 by K {found.auroc}")


if __name__ == "__main__":
    main()
