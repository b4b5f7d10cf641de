"""One of several processes that train together, and writes down what it saw and has learnt.

Run by a test with ``runpy`` in a process of its own. The test gives CONFIG, RANK, NUMBER, PORT and
OUT, the file to write.
"""

import os

import numpy as np

from imae.train.display import Display
from imae.train.loop import train_step
from imae.train.machine import build_fabric
from imae.train.processes import StopRequest
from imae.train.setup import setup


def main():
    rank, number = str(RANK), str(NUMBER)  # noqa: F821 - given by the test
    os.environ |= {
        "LOCAL_RANK": rank,
        "RANK": rank,
        "NODE_RANK": "0",
        "GROUP_RANK": "0",
        "WORLD_SIZE": number,
        "LOCAL_WORLD_SIZE": number,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(PORT),  # noqa: F821
    }
    state = setup(CONFIG, build_fabric(CONFIG.machine), Display())  # noqa: F821
    state.learner.train()
    shares = []
    for batch in state.batches.epoch(0):
        train_step(state, batch, StopRequest())
        shares.append(batch.row.numpy())
    weights = [parameter.detach().numpy().ravel() for parameter in state.learner.parameters()]
    np.savez(
        OUT,  # noqa: F821
        rows=np.concatenate(shares),
        sizes=[len(share) for share in shares],
        weights=np.concatenate(weights),
    )


if __name__ == "__main__":
    main()
