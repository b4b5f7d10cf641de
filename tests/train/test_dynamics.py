import numpy as np
import torch

from imae.losses import margin
from imae.train.dynamics import Dynamics

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 9.0, 1.0]])
TARGET = torch.tensor([0, 0])


def seen(rows, num_rows=5):
    dynamics = Dynamics(num_rows)
    dynamics.update(torch.tensor(rows), LOGITS, margin(LOGITS, TARGET), torch.tensor([0.25, 0.75]))
    return dynamics


def test_rows_are_found_by_their_position():
    record = Dynamics.record(seen([3, 1]).state())
    expected = margin(LOGITS, TARGET).numpy()
    np.testing.assert_array_equal(record.margin[[3, 1]], expected)
    np.testing.assert_array_equal(record.predicted, [-1, 1, -1, 0, -1])
    np.testing.assert_array_equal(record.weight[[3, 1]], np.float32([0.25, 0.75]))
    assert np.isnan(record.margin[[0, 2, 4]]).all()
    assert np.isnan(record.weight[[0, 2, 4]]).all()
    assert (record.margin.dtype, record.predicted.dtype) == (np.float32, np.int32)


def test_the_shares_of_ranks_add_up():
    whole = Dynamics.record(seen([3, 1]).state() + seen([0, 4]).state())
    assert (whole.predicted >= 0).tolist() == [True, True, False, True, True]
    np.testing.assert_array_equal(whole.margin[[0, 4]], margin(LOGITS, TARGET).numpy())


def test_clearing_and_restoring():
    dynamics = seen([3, 1])
    state = dynamics.state().clone()
    dynamics.clear()
    assert (Dynamics.record(dynamics.state()).predicted == -1).all()
    dynamics.restore(state)
    assert torch.equal(dynamics.state(), state)
