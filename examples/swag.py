"""SWAG and MultiSWAG on real images: from one trained network, and from three.

Run it with: python examples/swag.py
"""

import torch
from sklearn.datasets import load_digits

import demur

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(return_X_y=True)
images, labels = torch.from_numpy(images / 16).float(), torch.from_numpy(digits)
known, strange = labels < 8, labels >= 8  # 8 and 9 are never seen in training
x, y = images[known][:700], labels[known][:700]
test = images[known][700:], labels[known][700:]


def make_network():
    """Return an untrained network."""
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    )


def train(model, member):
    """Train a network in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for _ in range(10):
        for rows in torch.randperm(len(x)).split(70):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


# SGD at a constant learning rate, one iterate per epoch. Each draw gets its own batch-norm statistics.
settings = {"samples": 30, "epochs": 25, "rate": 0.05, "batch_size": 70, "weight_decay": 1e-3}
swags = demur.posteriors.MultiSWAG.fit(make_network, train, (x, y), 3, processes=0, **settings)

# By hand, it is one line in your own training loop.
torch.manual_seed(0)
model = make_network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
own = demur.posteriors.SWAG(model, data=(x, y), samples=30)
for epoch in range(35):
    for rows in torch.randperm(len(x)).split(70):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    if epoch >= 10:
        own.collect(model)

for name, posterior in (("SWAG", swags.swags[0]), ("own loop", own), ("MultiSWAG", swags)):
    scores = demur.score(posterior, [test], progress=False)
    unseen = demur.score(posterior, [images[strange]], progress=False)
    k, i = (
        demur.tasks.detection(scores[each].epistemic, unseen[each].epistemic).auroc
        for each in ("pairwise", "average")
    )
    print(f"{name:<10} accuracy {scores.correct.mean():.3f}  finds 8 and 9, AUROC of K {k}, of I {i}")
