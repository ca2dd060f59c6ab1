"""QUAM on real images: how far another model, as good on the training data, could contradict this one.

Run it with: python examples/quam.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(return_X_y=True)
images, labels = torch.from_numpy(images / 16).float(), torch.from_numpy(digits)
known = np.flatnonzero(digits < 8)  # 8 and 9 are never seen in training
train, test, strange = known[:1000], known[1000:1050], np.flatnonzero(digits >= 8)[:50]

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 8)
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(images[train]), labels[train]).backward()
    optimizer.step()

# For each input, eight searches: one towards each class.
quam = demur.posteriors.QUAM(network, (images[train], labels[train]), steps=30, temperature=1e-3)
dropout = demur.posteriors.MCDropout(network, samples=100)
for name, posterior in (("QUAM", quam), ("MC dropout", dropout)):
    inside, outside = (
        demur.score(posterior, [images[rows]], measures=["A3"], progress=False)["A3"].epistemic
        for rows in (test, strange)
    )
    found = demur.tasks.detection(inside, outside).auroc
    print(f"{name:<10}  median known {np.median(inside):.2g}, unseen {np.median(outside):.2g}  AUROC {found}")

# The temperature is a price: how much training loss may a contradiction cost?
for temperature in (1e-4, 1e-2):
    quam.temperature = temperature
    inside, outside = (
        np.median(demur.score(quam, [images[rows[:10]]], measures=["A3"], progress=False)["A3"].epistemic)
        for rows in (test, strange)
    )
    print(f"temperature {temperature:g}: median known {inside:.2g}, unseen {outside:.2g}")
