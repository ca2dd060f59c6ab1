"""Scores from one pass of one network beside the entropy and K of MC dropout, on real images.

Run it with: python examples/one_pass.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import MCDropout
from demur.posteriors.one_pass import (
    DUE,
    DUQ,
    SNGP,
    Energy,
    FeatureDensity,
    MaxLogit,
    NearestFeatures,
    NetworkTraining,
)

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
known = digits < 8  # 8 and 9 are never seen in training
train = (images[known][:1000], digits[known][:1000])
test, strange = (images[known][1000:], digits[known][1000:]), images[~known]

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 8)
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    logits = network(torch.from_numpy(train[0]))
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(train[1])).backward()
    optimizer.step()

# These need the trained network and, some of them, one pass over its training data.
density = FeatureDensity.fit(network, [train])
print(density)
columns = [Energy(network), MaxLogit(network), density, NearestFeatures.fit(network, [train])]

# These train a copy of a feature extractor with a head of their own.
extractor = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
options = {"classes": 8, "training": NetworkTraining(epochs=15, optimizer="adam", rate=0.005)}
columns.append(SNGP.fit(extractor, train, features=256, **options))
columns.append(DUE.fit(extractor, train, **options))
columns.append(DUQ.fit(extractor, train, size=32, length_scale=0.3, penalty=0.05, momentum=0.99, **options))

posterior = MCDropout(network, samples=50)
scores = demur.score(posterior, [test], columns=columns, progress=False)
far = demur.score(posterior, [strange], columns=columns, progress=False)
print(f"accuracy {scores.correct.mean():.3f}; digits 8 and 9 against the others, AUROC:")
for name in ("average_total", "pairwise_epistemic", *(each.name for each in columns)):
    found = demur.tasks.detection(scores.columns[name], far.columns[name])
    print(f"{name:<20} {found.auroc}")
