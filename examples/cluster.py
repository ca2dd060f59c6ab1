"""One job in one process, and on Ray while one of its workers is killed: the same bytes.

Run it with: python examples/cluster.py
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import demur
from demur.cluster import Cluster

images, digits = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(
        network(torch.from_numpy(images[:1000])), torch.from_numpy(digits[:1000])
    ).backward()
    optimizer.step()
batches = [(images[k : k + 50], digits[k : k + 50]) for k in range(1000, len(images), 50)]
with tempfile.TemporaryDirectory() as folder:

    def forward(model, inputs):
        """Leave the number of the process, and take a while."""
        (Path(folder) / str(os.getpid())).touch()
        time.sleep(0.5)
        return model(inputs)

    def kill_a_worker():
        """Wait for a worker to begin, then end it."""
        while not (begun := os.listdir(folder)):
            time.sleep(0.1)
        os.kill(int(begun[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker)
    posterior = demur.posteriors.LastLayer(network, dropout=0.2, samples=50, forward=forward)
    killer.start()
    many = demur.score(posterior, batches, cluster=Cluster("local", workers=2, rows=50), progress=False)
    killer.join()
    print(f"{len(os.listdir(folder))} workers took part, and one of them was killed.")

one = demur.score(demur.posteriors.LastLayer(network, dropout=0.2, samples=50), batches, progress=False)
same = all(many.columns[name].tobytes() == values.tobytes() for name, values in one.columns.items())
print("The same bytes as in one process." if same else "Other bytes than in one process!")
print(f"Errors found by K: AUROC {demur.tasks.misclassification(one['K'].epistemic, one.correct).auroc}")
