"""Sample the posterior of a small network with cyclical SG-HMC, and detect digits it has never seen.

The network learns the digits 0 to 7 of scikit-learn's 8 x 8 images; eights and nines appear only in the test
set. Nothing is trained beforehand: each cycle of the chain finds a mode and samples it. Needs PyTorch and
scikit-learn: `pip install "demur[torch,report]"`.

Run: python examples/cyclical_sghmc.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur

SAMPLES, CYCLES, STEPS = 40, 4, 1200


def main():
    """Print accuracy, detection of the unknown digits, and disagreement within and across cycles."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.from_numpy((images / 16).astype(np.float32)), torch.from_numpy(labels)
    known = labels < 8
    x, y = images[known], labels[known]
    train, test = (x[:1000], y[:1000]), (x[1000:], y[1000:])

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    posterior = demur.posteriors.CyclicalSGHMC(
        network, train, samples=SAMPLES, cycles=CYCLES, steps=STEPS, batch_size=100, exploration=0.5,
        friction=0.1, prior_scale=0.5,
    )  # fmt: skip
    scores = demur.score(posterior, [test])
    unknown = demur.score(posterior, [images[~known]])

    print(f"{scores.members} samples in {CYCLES} cycles of {STEPS // CYCLES} steps")
    print(f"accuracy on known digits: {scores.correct.mean():.3f}")
    for measure, name in (("pairwise", "K"), ("average", "I")):
        found = demur.tasks.detection(scores[measure].epistemic, unknown[measure].epistemic).auroc
        print(f"unknown digits by {name}: AUROC {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]")

    each = SAMPLES // CYCLES
    members = torch.cat(list(posterior.predict(images[~known])))
    within = [demur.decompose(logits=members[c * each : (c + 1) * each]).epistemic for c in range(CYCLES)]
    across = unknown["pairwise"].epistemic.mean()
    print("disagreement on unknown digits, in nats")
    print(f"  samples of one cycle: {torch.stack(within).mean():.3f}")
    print(f"  samples of all cycles: {across:.3f}")


if __name__ == "__main__":
    main()
