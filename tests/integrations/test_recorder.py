"""What a recorder of dynamics refuses, as no run folder could hold it."""

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
