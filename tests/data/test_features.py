import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from imae.data.extract import ProgressLog, extract_features
from imae.data.features import Table
from imae.data.image_files import ImageFiles
from imae.data.split import Split
from imae.errors import ArgumentError, DataError


class Counting(nn.Module):
    """Channel means through a dropout that would show if it were on."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.9)
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return self.drop(inputs.flatten(2).mean(2)) if inputs.ndim == 4 else inputs * 2


@pytest.fixture
def photos(photo_folder):
    names = sorted(str(path.relative_to(photo_folder)) for path in photo_folder.glob("*/*.jpg"))
    files = ImageFiles(photo_folder, names, resize=24, crop=20)
    return Split(files, np.arange(7) % 2, np.array(names), ("cat", "dog"))


def test_features_are_what_the_network_says_of_plain_inputs(photos, tmp_path):
    network = Counting()
    split = extract_features(photos, network, name="means", cache=tmp_path / "cache", batch_size=3)
    assert isinstance(split.inputs, Table)
    plain = photos.inputs.batch(np.arange(7), generator=None)
    assert split.inputs.values == pytest.approx(plain.flatten(2).mean(2).numpy(), abs=1e-6)
    assert split.labels is photos.labels
    assert split.row_ids is photos.row_ids
    assert network.calls == 3
    assert network.training
    assert network.drop.training


def test_the_second_time_nothing_is_run(photos, tmp_path):
    network = Counting()
    first = extract_features(photos, network, name="means", cache=tmp_path / "cache")
    noisy = photos.relabel(np.zeros(7, np.int64))
    second = extract_features(noisy, network, name="means", cache=tmp_path / "cache")
    assert network.calls == 1
    assert np.array_equal(first.inputs.values, second.inputs.values)
    assert second.labels is noisy.labels


def test_another_name_content_or_preparation_is_run_again(photos, tmp_path, photo):
    network = Counting()
    cache = tmp_path / "cache"
    extract_features(photos, network, name="means", cache=cache)
    extract_features(photos, network, name="other", cache=cache)
    cropped = Split(
        ImageFiles(photos.inputs.root, photos.inputs.names, resize=24, crop=18),
        photos.labels,
        photos.row_ids,
        photos.class_names,
    )
    extract_features(cropped, network, name="means", cache=cache)
    photo(photos.inputs.root / photos.inputs.names[0], seed=50)
    extract_features(photos, network, name="means", cache=cache)
    assert network.calls == 4
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("damage", ["cut", "flip", "shape", "other key"])
def test_a_damaged_cache_is_computed_again(photos, tmp_path, damage):
    network = Counting()
    cache = tmp_path / "cache"
    first = extract_features(photos, network, name="means", cache=cache)
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-30])
    elif damage == "flip":
        content[190] ^= 1
        path.write_bytes(content)
    elif damage == "shape":
        np.savez(path, features=np.zeros((3, 3), np.float32))
    else:
        np.savez(path, x=np.zeros((7, 3), np.float32))
    second = extract_features(photos, network, name="means", cache=cache)
    assert network.calls == 2
    assert np.array_equal(first.inputs.values, second.inputs.values)


def test_progress_is_reported_row_by_row(table_split, tmp_path):
    seen = []
    extract_features(
        table_split([0, 1, 0, 1, 0]),
        lambda inputs: inputs,
        name="same",
        cache=tmp_path,
        batch_size=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_half_precision_features_become_float32(table_split, tmp_path):
    split = extract_features(
        table_split([0, 1]), lambda inputs: inputs.bfloat16(), name="half", cache=tmp_path
    )
    assert split.inputs.values.dtype == np.float32


@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 1), (2,)])
def test_features_of_another_shape_are_refused(table_split, tmp_path, shape):
    with pytest.raises(ArgumentError, match=r"features of shape \(2, E\)"):
        extract_features(
            table_split([0, 1]), lambda _: torch.zeros(shape), name="odd", cache=tmp_path
        )
    assert list(tmp_path.iterdir()) == []


def test_features_that_are_not_finite_are_refused(table_split, tmp_path):
    with pytest.raises(DataError, match="row 0, column 0 is nan"):
        extract_features(
            table_split([0, 1]), lambda inputs: inputs * torch.nan, name="nan", cache=tmp_path
        )
    assert list(tmp_path.iterdir()) == []


def test_a_method_of_a_module_is_run_in_evaluation_mode_too(photos, tmp_path):
    network = Counting()
    split = extract_features(photos, network.forward, name="means", cache=tmp_path / "cache")
    plain = photos.inputs.batch(np.arange(7), generator=None)
    assert split.inputs.values == pytest.approx(plain.flatten(2).mean(2).numpy(), abs=1e-6)
    assert network.training
    assert network.drop.training


def test_the_next_rows_are_read_while_the_network_runs(table_split, tmp_path):
    reading = []

    class Watched(Table):
        def gather(self, rows, *, generator):
            reading.append((int(rows[0]), threading.current_thread().name))
            return super().gather(rows, generator=generator)

    split = table_split([0, 1, 0, 1, 0, 1])
    split = replace(split, inputs=Watched(split.inputs.values))
    ahead = []

    def network(inputs):
        for _ in range(200):
            if len(reading) > min(len(ahead) + 1, 2):  # the last of three batches has no next
                break
            time.sleep(0.01)
        ahead.append(len(reading))
        return inputs

    found = extract_features(split, network, name="same", cache=tmp_path, batch_size=2)
    assert ahead[0] >= 2  # the second batch was read before the network was done with the first
    assert all(name.startswith("imae-read") for _, name in reading)
    assert np.array_equal(found.inputs.values, split.inputs.values)


def test_an_error_in_the_reading_thread_is_raised(photos, tmp_path):
    (photos.inputs.root / photos.inputs.names[5]).write_bytes(b"no image")
    with pytest.raises(DataError, match="cannot be read as an image"):
        extract_features(photos, Counting(), name="x", cache=tmp_path / "cache", batch_size=2)


def test_progress_is_printed_in_a_log(capsys):
    log = ProgressLog("features", every=0.0)
    time.sleep(0.01)
    log(50, 100)
    silent = ProgressLog("features", every=1000.0)
    silent(100, 100)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("features: 50 of 100 rows, ")
    assert lines[0].endswith("0 min left")
