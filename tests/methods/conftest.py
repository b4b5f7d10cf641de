import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch


class Group:
    """Ranks that run as threads of this process, with the sums and rows that they exchange."""

    def __init__(self, number):
        self.number = number
        self._barrier = threading.Barrier(number, timeout=60)
        self._parts = [None] * number

    def run(self, work):
        """What ``work(rank, total, gather)`` gives on each rank, in rank order."""
        with ThreadPoolExecutor(self.number) as pool:
            return list(pool.map(lambda rank: self._work(work, rank), range(self.number)))

    def _work(self, work, rank):
        try:
            return work(
                rank,
                lambda tensor: torch.stack(self._exchange(rank, tensor)).sum(0).to(tensor.dtype),
                lambda tensor: torch.cat(self._exchange(rank, tensor)),
            )
        except BaseException:
            self._barrier.abort()  # the others must not wait for a rank that has failed
            raise

    def _exchange(self, rank, tensor):
        self._parts[rank] = tensor.detach().clone()
        self._barrier.wait()
        parts = list(self._parts)
        self._barrier.wait()
        return parts


@pytest.fixture
def two_ranks():
    return Group(2)
