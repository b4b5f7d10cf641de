"""Planted wrong labels and what a run records of labels that it does not train on."""

import numpy as np
import pytest

from imae.data import Split, Table
from imae.errors import ArgumentError
from imae.records import RunFolder
from imae.train import build_config, train
from imae.train.relabel import plant_wrong_labels

LABELS = np.tile(np.arange(4), 50)
ROWS = Split(
    Table(np.zeros((200, 1), np.float32)), LABELS, np.arange(200).astype(str), ("a", "b", "c", "d")
)


def test_exactly_the_share_of_rows_gets_another_label():
    changed, originals = plant_wrong_labels(ROWS, 0.1, seed=1)
    differs = np.flatnonzero(changed.labels != LABELS)
    assert len(differs) == 20
    np.testing.assert_array_equal(originals.row_ids, ROWS.row_ids[differs])
    np.testing.assert_array_equal(originals.labels, LABELS[differs])
    assert changed.clean_labels is None  # the given labels do not count as the truth
    assert set(changed.labels) <= set(range(4))


def test_the_same_seed_plants_the_same_labels():
    first, second, other = (plant_wrong_labels(ROWS, 0.1, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.labels, second.labels)
    assert (first.labels != other.labels).any()


def test_a_share_of_less_than_one_row_is_refused():
    with pytest.raises(ArgumentError, match=r"data\.planted.*less than one"):
        plant_wrong_labels(ROWS, 0.002, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    config = {
        "data": {"name": "digits", "planted": 0.05, "hold_out": 0.1},
        "noise": "symmetric:0.2",
        "model": {"name": "mlp"},
        "train": {"epochs": 2},
        "out": str(path / "run"),
    }
    train(build_config(config))
    return RunFolder(path / "run")


def test_every_training_row_of_the_data_has_its_given_label_in_the_run_folder(folder):
    labels, held = folder.labels(), folder.held_labels()
    trained = labels.row_ids[~labels.planted]
    assert len(set(trained) | set(held.row_ids)) == len(trained) + len(held.row_ids)
    assert set(labels.row_ids[labels.planted]) < set(held.row_ids)
    assert labels.planted.sum() == round(0.05 * len(labels.given))


def test_the_recorded_margin_of_held_labels_agrees_with_the_prediction(folder):
    held = folder.held_labels()
    for epoch in folder.epochs():
        shown = folder.held_dynamics(epoch)
        assert len(shown.margin) == len(held.given)
        assert (shown.predicted[shown.margin > 0] == held.given[shown.margin > 0]).all()
    last = folder.history()[-1]
    num_planted = folder.labels().planted.sum()
    hits = (shown.predicted == held.given)[:-num_planted]
    assert last["validation_accuracy"] == pytest.approx(hits.mean())


def test_planted_rows_are_left_out_of_the_measures(folder):
    labels = folder.labels()
    noisy = (labels.given != labels.clean)[~labels.planted].mean()
    last = folder.history()[-1]
    share = noisy * last["noisy_accuracy"] + (1 - noisy) * last["clean_accuracy"]
    assert last["train_accuracy"] == pytest.approx(share)


def test_truncating_removes_the_held_dynamics_too(tmp_path, folder):
    copy = RunFolder(tmp_path / "copy")
    for epoch in (1, 2):
        copy.write_dynamics(epoch, folder.dynamics(epoch), folder.held_dynamics(epoch))
    copy.truncate(step=0, num_epochs=1)
    assert sorted(path.name for path in (copy.path / "dynamics").iterdir()) == [
        "epoch-00001.npz",
        "held-00001.npz",
    ]
