"""One network, one pass: an evidential network and a prior network on handwritten digits.

Both learn the digits 0 to 7 of scikit-learn's 8 x 8 images and predict a Dirichlet distribution for each. The
prior network also sees inputs that are no digits, images with their pixels shuffled, and learns to have no
evidence there. Needs PyTorch and scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/evidential.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.posteriors import EvidentialNetwork, evidential

EPOCHS = 40


def train(x, y, compute_loss):
    """Return a network after training; `compute_loss` maps network, batch and epoch to a loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            compute_loss(model, x[rows], y[rows], epoch).backward()
            optimizer.step()
    return model


def compute_evidential_loss(model, x, y, epoch):
    """Sensoy et al. (2018): misleading evidence costs more from epoch to epoch."""
    concentration = evidential.make_concentration(model(x), "softplus")
    return evidential.evidential_loss(concentration, y, weight=min(1.0, epoch / 10))


def compute_prior_loss(model, x, y, epoch):
    """Malinin and Gales (2019): digits are sharp, shuffled pixels are flat."""
    shuffled = x[:, torch.randperm(x.shape[1])]
    inside, outside = (evidential.make_concentration(model(each), "prior") for each in (x, shuffled))
    return evidential.prior_network_loss(inside, evidential.make_sharp_target(y, 8), outside)


def main():
    """Print accuracy, mean precision, and how well K tells the digits 8 and 9 from the others."""
    images, digits = load_digits(return_X_y=True)
    images = torch.from_numpy((images / 16).astype(np.float32))
    known = digits < 8
    x, y = images[known], torch.from_numpy(digits[known])
    for name, head, loss in (
        ("evidential", "softplus", compute_evidential_loss),
        ("prior", "prior", compute_prior_loss),
    ):
        posterior = EvidentialNetwork(train(x[:1000], y[:1000], loss), head)
        scores = demur.score(posterior, [(x[1000:], y[1000:])])
        strange = demur.score(posterior, [images[~known]])
        k, of_strange = (each["pairwise"].epistemic for each in (scores, strange))
        found = demur.tasks.detection(k, of_strange)
        print(f"{name} network: accuracy {scores.correct.mean():.3f}")
        print(f"  K of digits {np.median(k):.3f}, of 8 and 9 {np.median(of_strange):.3f} nats, medians")
        print(f"  AUROC of 8 and 9 against the others by K: {found.auroc}")


if __name__ == "__main__":
    main()
