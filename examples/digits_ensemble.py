"""Train a small ensemble on real digits, decompose its predictions, and decide which to defer.

Five perceptrons learn the digits 0 to 7 of scikit-learn's 8 x 8 images. The test set also has eights and
nines, which none of them has ever seen. Needs scikit-learn: `pip install "demur[report]"`.

Run: python examples/digits_ensemble.py
"""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import demur

MEMBERS = 5
KEPT = 0.5  # the share of the test set that is not deferred


def train(images, labels):
    """Train members that differ in their initial weights and the order of the data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 80 passes are enough here
        return [
            MLPClassifier((32,), max_iter=80, random_state=seed).fit(images, labels)
            for seed in range(MEMBERS)
        ]


def main():
    """Print accuracy with and without deferral, and the inputs that a person should see first."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    known = labels < 8
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images[known], labels[known], test_size=0.3, random_state=0
    )
    test = np.concatenate([held_out, images[~known]])
    truth = np.concatenate([held_out_labels, labels[~known]])

    members = train(seen, seen_labels)
    probs = np.stack([member.predict_proba(test) for member in members])
    u = demur.decompose(probs)
    correct = probs.mean(axis=0).argmax(axis=1) == truth

    print(f"{len(test)} inputs: {len(held_out)} known digits, {np.sum(~known)} unknown ones")
    print(f"accuracy on all of them: {correct.mean():.3f}")
    for name, score in (("aleatoric", u.aleatoric), ("epistemic", u.epistemic), ("total", u.total)):
        certain = np.argsort(score, kind="stable")[: int(KEPT * len(test))]
        print(f"accuracy on the {KEPT:.0%} most certain by {name}: {correct[certain].mean():.3f}")

    print("to a person first:")
    classes = demur.attribute(probs)
    for index in np.argsort(-u.epistemic, kind="stable")[:5]:
        between = np.sort(np.argsort(-classes[index])[:2])
        print(
            f"  input {index:3d}: a {truth[index]}; epistemic {u.epistemic[index]:5.2f} nats, "
            f"mostly between {between[0]} and {between[1]}"
        )


if __name__ == "__main__":
    main()
