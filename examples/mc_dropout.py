"""Leave dropout on: a hundred members from one trained network.

A small residual network learns the digits 0 to 7 of scikit-learn's 8 x 8 images. The layers before its
dropout run once for all members. Needs PyTorch and scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/mc_dropout.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import MCDropout

SAMPLES = 100


class Network(torch.nn.Module):
    """A residual network: not a plain sequence, but one that `torch.fx` can trace."""

    def __init__(self):
        super().__init__()
        self.first, self.block = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.dropout, self.last = torch.nn.Dropout(0.3), torch.nn.Linear(64, 8)

    def forward(self, x):
        """Return logits."""
        x = torch.relu(self.first(x))
        return self.last(self.dropout(x + torch.relu(self.block(x))))


def main():
    """Print accuracy with dropout off and of the average, and the input that members disagree about most."""
    images, digits = load_digits(return_X_y=True)
    images = torch.from_numpy((images / 16).astype(np.float32))
    known = digits < 8
    x, y = images[known], torch.from_numpy(digits[known])

    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[:1000]), y[:1000]).backward()
        optimizer.step()

    posterior = MCDropout(model, samples=SAMPLES)
    scores = demur.score(posterior, [(x[1000:], y[1000:])], stderr=True)
    strange = demur.score(posterior, [images[~known]])
    print(f"accuracy with dropout off: {(scores.deployed == scores.labels).mean():.3f}")
    print(f"accuracy of the average of {SAMPLES} members: {scores.correct.mean():.3f}")
    found = demur.tasks.detection(scores["pairwise"].epistemic, strange["pairwise"].epistemic)
    print(f"AUROC of 8 and 9 against the others by K: {found.auroc}")
    k = scores["pairwise"]
    worst = int(k.epistemic.argmax())
    print(f"most doubtful: input {worst}, K {k.epistemic[worst]:.2f} ± {k.stderr.epistemic[worst]:.2f} nats")


if __name__ == "__main__":
    main()
