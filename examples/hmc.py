"""Hamiltonian Monte Carlo on real images: the posterior itself, and how far MC dropout is from it.

Run it with: python examples/hmc.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(n_class=5, return_X_y=True)
images = torch.from_numpy(images / 16)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:150], order[150:450]
labels = torch.from_numpy(digits)

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(64, 10), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(10, 5)
).double()

# Four chains from four draws of the prior. Only chains that began apart and agree show convergence.
hmc = demur.posteriors.HMC(
    network, (images[train], labels[train]), samples=40, chains=4, burn_in=20, prior_scale=0.5, seed=0
).fit()
print(hmc.diagnostics)
rhat, size = hmc.diagnose(images[test][:50])
print(f"predictions      worst R-hat {rhat.max():.3f}, least effective size {size.min():.0f}")

optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(images[train]), labels[train]).backward()
    optimizer.step()
dropout = demur.posteriors.MCDropout(network, samples=80, seed=0)

for name, posterior in (("HMC", hmc), ("MC dropout", dropout)):
    scores = demur.score(posterior, [(images[test], labels[test])], progress=False)
    found = demur.tasks.misclassification(scores["pairwise"].total, scores.correct).auroc
    k = np.median(scores["pairwise"].epistemic)
    print(f"{name:<10}  accuracy {scores.correct.mean():.3f}  median K {k:.4f}  finds errors {found}")
