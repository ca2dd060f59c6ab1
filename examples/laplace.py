"""Laplace on real images: a Gaussian about a trained network, with a prior that the data choose.

A small network learns the digits 0 to 7 of scikit-learn's 8 x 8 images. Three approximations of its posterior
are fitted, each in one pass over the training data, and compared by how well they detect the unknown digits.
Needs PyTorch and scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/laplace.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import Laplace

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(return_X_y=True)
images = torch.from_numpy((images / 16).astype(np.float32))
known = digits < 8
x, y = images[known], torch.from_numpy(digits[known])
train, test = [(x[:1000], y[:1000])], [(x[1000:], y[1000:])]

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-4)
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(x[:1000]), y[:1000]).backward()
    optimizer.step()

for options in (
    {"structure": "kronecker"},
    {"structure": "full"},
    {"structure": "diagonal", "layers": "all"},
):
    laplace = Laplace.fit(network, train, samples=100, seed=0, **options)
    scores = demur.score(laplace, test, progress=False)
    strange = demur.score(laplace, [images[~known]], progress=False)
    found = demur.tasks.detection(scores["pairwise"].epistemic, strange["pairwise"].epistemic)
    print(
        f"{laplace}: prior precision {laplace.prior_precision:.2f}, log marginal likelihood "
        f"{laplace.log_marginal_likelihood:.0f}, accuracy {scores.correct.mean():.3f}, "
        f"AUROC of 8 and 9 by K {found.auroc}"
    )
