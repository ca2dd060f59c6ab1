"""A scikit-learn classifier that defers what it cannot promise an accuracy for.

A forest learns the digits of scikit-learn's 8 x 8 images. It holds out half of its training images, and keeps
as many new ones as it can while what it keeps is right for 98 %, with confidence 0.95. Then each image comes
as three noisy ones, which are not independent: whole images are held out. Needs scikit-learn:
`pip install "demur[sklearn]"`.

Run: python examples/deferring_classifier.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from demur.sklearn import DeferringClassifier


def main():
    """Print what the classifier promises, what it does to new images, and which ones it defers."""
    x, y = load_digits(return_X_y=True)
    x, new_x, y, new_y = train_test_split(x, y, test_size=0.3, random_state=0)
    forest = RandomForestClassifier(100)
    model = DeferringClassifier(forest, posterior="own", accuracy=0.98, calibration=0.5, random_state=0)
    print(model.fit(x, y).report(new_x, new_y))

    print("\nThe first ten, as predict returns them, and as decide does:")
    print(*model.predict(new_x[:10]))
    print(*model.decide(new_x[:10]))

    model.set_params(defer_label=-1)  # for metrics and pipelines, which take numbers
    wrong = model.estimator_.predict(new_x) != new_y
    print(f"{(model.predict(new_x)[wrong] == -1).sum()} of the forest's {wrong.sum()} errors are deferred.")

    image = np.repeat(np.arange(len(x)), 3)
    noisy = x[image] + np.random.default_rng(0).normal(scale=2, size=(len(image), 64))
    model.fit(noisy, y[image], clusters=image)
    print(f"\nFitted to three noisy images of each:\n{model.policy_.promise()}")


if __name__ == "__main__":
    main()
