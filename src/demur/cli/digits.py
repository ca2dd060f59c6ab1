"""The data of the demo: a small ensemble on scikit-learn's digits, which never saw 8 and 9."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEMBERS = 10
HELD_OUT = (8, 9)


@dataclass(frozen=True)
class Digits:
    """Images to train on, and images to predict: known digits first, then the held-out ones.

    Attributes
    ----------
    train_images, train_digits
        (images, 64) and (images,), digits 0 to 7.
    images, digits
        (inputs, 64) and (inputs,), the test images of 0 to 7 and all of 8 and 9.
    held_out
        (inputs,), True where the digit is 8 or 9.
    """

    train_images: np.ndarray
    train_digits: np.ndarray
    images: np.ndarray
    digits: np.ndarray
    held_out: np.ndarray


def load(seed: int) -> Digits:
    """Load the images and split them; the same seed gives the same split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    images = images / 16.0  # pixels count from 0 to 16
    strange = np.isin(digits, HELD_OUT)
    train_images, test_images, train_digits, test_digits = train_test_split(
        images[~strange],
        digits[~strange],
        test_size=0.4,
        stratify=digits[~strange],
        random_state=seed,
    )
    return Digits(
        np.asarray(train_images),
        np.asarray(train_digits),
        np.concatenate([test_images, images[strange]]),
        np.concatenate([test_digits, digits[strange]]),
        np.repeat([False, True], [len(test_images), strange.sum()]),
    )


def predict(data: Digits, seed: int) -> np.ndarray:
    """Train one member and let it predict.

    Returns
    -------
    numpy.ndarray
        (inputs, 8), log-probabilities.
    """
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    # One thread: such small products are faster so, and their sums come in the same order anywhere.
    with threadpool_limits(limits=1):
        model = MLPClassifier((32, 32), max_iter=1000, random_state=seed)
        model.fit(data.train_images, data.train_digits)
        return model.predict_log_proba(data.images)
