"""What a recorder of dynamics refuses, as no run folder could hold it."""

import pytest
import torch

from imae.errors import DataError
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
