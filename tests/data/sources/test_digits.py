from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from imae.data.sources import digits as module
from imae.data.sources.catalog import named_set
from imae.data.sources.digits import digits, locate_digits, verify_digits
from imae.errors import DataError


def test_rows_are_those_of_scikit_learn() -> None:
    data = digits()
    bunch = load_digits()
    assert data.test is not None
    for split in (data.train, data.test):
        rows = np.array([int(row_id.removeprefix("digits/")) for row_id in split.row_ids])
        np.testing.assert_array_equal(split.labels, bunch.target[rows])
        pixels = split.inputs.pixels  # type: ignore[attr-defined]
        np.testing.assert_allclose(pixels[:, 0] / 255, bunch.images[rows] / 16, atol=0.5 / 255)


def test_split_is_fixed_stratified_and_complete() -> None:
    data = digits()
    assert data.test is not None
    ids = np.concatenate([data.train.row_ids, data.test.row_ids])
    assert sorted(ids) == [f"digits/{row:04d}" for row in range(1_797)]
    counts = np.bincount(load_digits().target)
    np.testing.assert_array_equal(np.bincount(data.test.labels), counts // 5)
    seen = [0] * 10
    fifths = []
    for row, label in enumerate(load_digits().target):
        seen[label] += 1
        if seen[label] % 5 == 0:
            fifths.append(f"digits/{row:04d}")
    assert data.test.row_ids.tolist() == fifths


def test_batch_is_normalised() -> None:
    batch = digits().train.inputs.batch(np.arange(1_442), generator=None)
    assert batch.shape == (1_442, 1, 8, 8)
    assert batch.mean().item() == pytest.approx(0, abs=0.02)
    assert batch.std().item() == pytest.approx(1, abs=0.02)


def test_verify_and_locate(tmp_path: Path) -> None:
    assert verify_digits(tmp_path).keys() == {"images", "labels"}
    place = locate_digits(tmp_path)
    assert place is not None
    assert place.name == "sklearn"


def test_other_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = module._read()
    images[5] = 0
    monkeypatch.setattr(module, "_read", lambda: (images, labels))
    with pytest.raises(DataError, match=r"scikit-learn: images .* are not the published ones"):
        digits()


def test_origin_has_nothing_to_put(tmp_path: Path) -> None:
    (origin,) = named_set("digits").origins
    assert origin.fetch(tmp_path) == ()
    assert origin.label == "scikit-learn"
    assert list(tmp_path.iterdir()) == []
