from types import SimpleNamespace

import numpy as np
import pytest
import torch

from imae.train.display import QuietDisplay
from imae.train.learner import evaluate, measures
from imae.train.machine import build_fabric
from imae.train.rows import Prepared
from imae.train.setup import setup
from imae.train.state import Ranks


def split(labels, clean=None):
    clean = None if clean is None else np.array(clean)
    return SimpleNamespace(labels=np.array(labels), clean_labels=clean)


PREPARED = Prepared(
    train=split([0, 1, 2, 0, 1], [0, 1, 2, 1, 2]),  # the last two labels are wrong
    validation=split([1, 1]),
    test=split([0, 1, 2]),
)


def test_each_measure_by_hand():
    found = measures(
        PREPARED,
        test=np.array([0, 1, 0]),
        validation=np.array([1, 0]),
        train=np.array([0, 1, 1, 0, 2]),
    )
    assert found == {
        "test_accuracy": pytest.approx(2 / 3),
        "validation_accuracy": 0.5,
        "train_accuracy": pytest.approx(3 / 5),
        "intact_accuracy": pytest.approx(3 / 5),
        "noisy_accuracy": 0.5,  # row 3 fits its wrong label
        "clean_accuracy": pytest.approx(2 / 3),
        "corrected_accuracy": 0.5,  # row 4 is seen through
        "hybrid_accuracy": 5 / 8,  # 2 of 3 test rows, 3 of 5 training rows as what they are
    }


def test_memorised_labels_are_a_full_fit_of_the_given_and_not_of_the_intact_ones():
    found = measures(PREPARED, test=None, validation=None, train=PREPARED.train.labels)
    assert found["train_accuracy"] == found["noisy_accuracy"] == 1
    assert found["intact_accuracy"] == 3 / 5


def test_what_is_not_known_is_none():
    found = measures(Prepared(split([0, 1]), None, None), test=None, validation=None, train=None)
    assert set(found.values()) == {None}
    found = measures(
        Prepared(split([0, 1]), None, None), test=None, validation=None, train=np.array([0, 0])
    )
    assert {key for key, value in found.items() if value is not None} == {"train_accuracy"}
    right = Prepared(split([0, 1], [0, 1]), None, None)
    found = measures(right, test=None, validation=None, train=np.array([0, 0]))
    assert found["noisy_accuracy"] is None
    assert found["corrected_accuracy"] is None
    assert found["clean_accuracy"] == 0.5
    assert found["hybrid_accuracy"] is None


def test_true_labels_of_the_test_rows_count_where_they_are_known():
    prepared = Prepared(PREPARED.train, None, split([0, 0], [1, 0]))
    assert measures(prepared, test=np.array([1, 0]), validation=None, train=None) == {
        **dict.fromkeys(
            f"{part}_accuracy"
            for part in ("validation", "train", "intact", "noisy", "clean", "corrected", "hybrid")
        ),
        "test_accuracy": 1.0,
    }


def test_the_mode_of_the_network_is_put_back_and_nothing_changes(configure):
    config = configure(train={"evaluate_batch_size": 7})
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    state.learner.train()
    before = {name: each.clone() for name, each in state.learner.state_dict().items()}
    first = evaluate(state)
    assert state.learner.training
    assert state.network.training
    assert all((before[name] == each).all() for name, each in state.learner.state_dict().items())
    bigger = configure(train={"evaluate_batch_size": 256})
    other = setup(bigger, build_fabric(bigger.machine), QuietDisplay())
    assert evaluate(other) == first


def test_the_statistics_of_the_network_that_is_measured_are_those_of_the_first_process(configure):
    config = configure(train={"average": 0.9})
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    first = {name: buffer.clone() + 1 for name, buffer in state.network.named_buffers()}

    class Second(Ranks):
        """A process whose own statistics differ from those of the first."""

        def broadcast_buffers(self, network):
            if network is state.network:
                network.load_state_dict({**network.state_dict(), **first})

    assert state.network is not state.learner.network
    state.ranks = Second(state.fabric)
    evaluate(state)
    for name, buffer in state.network.named_buffers():
        assert torch.equal(buffer, first[name])
