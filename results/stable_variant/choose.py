"""How the stable variant of IMAE was chosen: accuracy on held-out given labels of digits.

Run: python results/stable_variant/choose.py [VARIANT...] >> results/stable_variant/runs.jsonl
No test row and no true label is looked at. Each line of the file is one run: the variant, the
learning rate, the seed, the accuracy after every fifth epoch, and seconds of wall time.
"""

import json
import math
import sys
import time

import numpy as np
import torch

from imae import noise
from imae.data import Batches, hold_out, load
from imae.methods import METHODS, Rows
from imae.models import build

VARIANTS = {
    "imae": ("imae", {}),
    "high4+n": ("imae", {"window_high": 4.0, "normalize": "batch"}),
    "high8+n": ("imae", {"window_high": 8.0, "normalize": "batch"}),
    "b3+n": ("imae", {"bound": 3.0, "normalize": "batch"}),
    "b5+n": ("imae", {"bound": 5.0, "normalize": "batch"}),
    "b8+n": ("imae", {"bound": 8.0, "normalize": "batch"}),
    "b16+n": ("imae", {"bound": 16.0, "normalize": "batch"}),
    "high16+n": ("imae", {"window_high": 16.0, "normalize": "batch"}),
    "cce": ("cce", {}),
    "gce": ("gce", {}),
}
LEARNING_RATES = (0.1, 0.05, 0.02)
SEEDS = (1, 2, 3)
EPOCHS = 40


def held_out_accuracies(variant: str, learning_rate: float, seed: int) -> list[float]:
    """Accuracy on the held-out given labels after every fifth epoch."""
    split = load("digits").train
    noisy = noise.apply("symmetric:0.4", split.labels, num_classes=10, seed=seed)
    train, held = hold_out(split.relabel(noisy.labels), 0.2, seed)
    network = build("small_cnn", num_classes=10, seed=seed)
    name, arguments = VARIANTS[variant]
    method = METHODS.build(name, **arguments)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    batches = Batches(train, 64, seed=seed)
    total, step, accuracies = EPOCHS * len(batches), 0, []
    for epoch in range(EPOCHS):
        network.train()
        for batch in batches.epoch(epoch):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * step / total))
            optimizer.zero_grad()
            method(Rows(network(batch.inputs), batch.target, batch.row)).mean().backward()
            optimizer.step()
            step += 1
        if epoch % 5 == 4:
            network.eval()
            with torch.inference_mode():
                scores = network(held.inputs.batch(np.arange(len(held)), generator=None))
            accuracies.append(float((scores.argmax(1).numpy() == held.labels).mean()))
    return accuracies


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed in SEEDS:
        for variant in sys.argv[1:] or VARIANTS:
            for rate in LEARNING_RATES:
                start = time.perf_counter()
                held = held_out_accuracies(variant, rate, seed)
                seconds = time.perf_counter() - start
                row = {"name": variant, "lr": rate, "seed": seed, "held": held, "s": seconds}
                print(json.dumps(row), flush=True)
