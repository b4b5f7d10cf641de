"""What a recorder of dynamics refuses, as no run folder could hold it."""

import numpy as np
import pytest
import torch

from imae.cli.app import main
from imae.errors import ArgumentError, DataError
from imae.integrations.dynamics import Recorder


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"row_ids": ["a", "a"]}, "row_ids: a name appears twice"),
        ({"class_names": ["x", "x"]}, "class_names: a name appears twice"),
    ],
)
def test_names_that_are_not_unique_are_refused_at_the_start(tmp_path, names, message):
    with pytest.raises(DataError, match=message):
        Recorder(tmp_path / "run", 2, **names)


def test_class_names_of_another_number_are_refused(tmp_path):
    recorder = Recorder(tmp_path / "run", 2, class_names=["x", "y"])
    recorder.update(torch.arange(2), torch.zeros(2, 2), torch.arange(2))
    with pytest.raises(DataError, match="2 class names and logits of 3 classes"):
        recorder.update(torch.arange(2), torch.zeros(2, 3), torch.arange(2))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([-1, 1], r"labels must be class numbers in \[0, 2\), got -1, 1; leave out other rows"),
        ([0, 2], r"labels must be class numbers in \[0, 2\), got 0, 2"),
        ([-100, 1], "got -100, 1; leave out"),
        (["a", "b"], "got a, b"),
        (np.ma.masked_equal([0, 1], 1), "labels: 1 values are masked"),
        ([[1, 0], [0, 1]], r"target must be of shape \(2,\), got \(2, 2\)"),
        (None, r"the labels of these rows are not in \[0, 2\), or not given: give target"),
    ],
)
def test_labels_that_are_no_class_numbers_are_one_line(tmp_path, target, message):
    recorder = Recorder(tmp_path / "run", 2)
    with pytest.raises(DataError, match=message):
        recorder.update(torch.arange(2), torch.zeros(2, 2), target)
    with pytest.raises(DataError, match=r"logits must be of shape \(B, C\), with C at least 2"):
        recorder.update(torch.arange(2), torch.zeros(2, 1), torch.arange(2))


def test_arrays_are_recorded_as_tensors_are(tmp_path):
    given = np.array([1, 0], np.uint8)
    given.setflags(write=False)
    recorder = Recorder(tmp_path / "run", 2, given=given, class_names=np.array(["x", "y"]))
    recorder.update([], np.zeros((0, 2)))
    recorder.update([0, 1], 4 * np.eye(2))
    recorder.end_epoch()
    assert recorder.folder.labels().given.tolist() == [1, 0]
    assert recorder.folder.dynamics(1).predicted.tolist() == [0, 1]


@pytest.fixture
def recorded(tmp_path):
    recorder = Recorder(tmp_path / "run", 40)
    recorder.update(torch.arange(40), 4 * torch.eye(2).repeat(20, 1), torch.arange(40) % 2)
    recorder.end_epoch()
    recorder.finish()
    return tmp_path / "run"


def test_a_folder_that_holds_a_run_is_called_so(recorded):
    with pytest.raises(ArgumentError, match="run: holds a run; choose another folder"):
        Recorder(recorded, 40)


def test_the_advice_of_the_audit_can_be_followed(recorded, capsys):
    assert main(["audit", str(recorded)]) == 0
    said = capsys.readouterr()
    assert "given to the training in Python" in said.err
    labels = recorded.parent / "labels.csv"
    assert (
        main(["audit", "apply", str(recorded), "--accept-above", "0.9", "--out", str(labels)]) == 0
    )
    said = capsys.readouterr().out
    assert f"next: train on the labels in {labels} (columns row_id and label)" in said
    assert "imae train" not in said
