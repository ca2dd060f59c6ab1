"""Bayes by backprop on real images, and how far it is from Hamiltonian Monte Carlo.

Run it with: python examples/bayes_by_backprop.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur

torch.set_num_threads(1)  # faster for a network this small
images, digits = load_digits(n_class=5, return_X_y=True)
images, labels = torch.from_numpy(images / 16), torch.from_numpy(digits)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:150], order[150:450]
data = images[train], labels[train]

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Tanh(), torch.nn.Linear(10, 5)).double()

# The same network, data and prior, so that both aim at the same posterior.
mean_field = demur.posteriors.BayesByBackprop(
    network, data, samples=40, steps=800, rate=0.02, batch_size=150, prior_scale=0.5, seed=0
)
hmc = demur.posteriors.HMC(network, data, samples=40, chains=4, burn_in=20, prior_scale=0.5, seed=0)

for name, posterior in (("Bayes by backprop", mean_field), ("HMC", hmc)):
    scores = demur.score(posterior, [(images[test], labels[test])], progress=False)
    found = demur.tasks.misclassification(scores["pairwise"].total, scores.correct).auroc
    k = np.median(scores["pairwise"].epistemic)
    print(f"{name:<17}  accuracy {scores.correct.mean():.3f}  median K {k:.4f}  finds errors {found}")

widths = torch.cat([each.flatten() for each in mean_field.scale.values()])
print(f"Standard deviations from {widths.min():.3f} to {widths.max():.3f}; the prior has 0.5.")
