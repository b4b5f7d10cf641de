import hashlib
import json
import zipfile

import numpy as np
import pytest
import torch

from imae.errors import DataError, ImaeError
from imae.train import train
from imae.train.run import (
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    save_checkpoint,
    save_tensors,
)


def save(folder, *steps, keep=2):
    for step in steps:
        content = {"step": step, "weights": torch.full((50,), float(step)), "nested": {"a": [1]}}
        save_checkpoint(folder, content, step=step, keep=keep)


def test_the_newest_is_loaded_and_older_ones_are_removed(tmp_path):
    save(tmp_path, 5, 10, 900, 1000)
    assert [path.stem for path in list_checkpoints(tmp_path)] == [
        "step-000000900",
        "step-000001000",
    ]
    assert len(list(tmp_path.iterdir())) == 4
    content = load_checkpoint(tmp_path, pytest.fail)
    assert content["step"] == 1000
    assert content["nested"] == {"a": [1]}
    assert torch.equal(content["weights"], torch.full((50,), 1000.0))


def test_without_a_checkpoint_there_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "nothing", pytest.fail) is None


def test_later_ones_that_could_not_be_read_are_not_kept_instead(tmp_path):
    save(tmp_path, 200, 300, keep=1)
    list_checkpoints(tmp_path)[0].with_suffix(".json").unlink()  # killed before it was written
    save(tmp_path, 250, keep=1)
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["step-000000250"]
    assert load_checkpoint(tmp_path, pytest.fail)["step"] == 250


def test_every_one_that_is_kept_can_be_loaded(tmp_path):
    save(tmp_path, 1, 2, 3, keep=3)
    assert [load_tensors(path)["step"] for path in list_checkpoints(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("number", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_damage_anywhere_is_noticed_and_the_one_before_is_taken(configure, number):
    small = {"name": "mlp", "arguments": {"hidden": 8}}
    run = train(configure(model=small, train={"epochs": 2}, optimizer={"name": "adam"}))
    folder = run.folder.checkpoints
    before, newest = list_checkpoints(folder)
    before = load_tensors(before)["step"]
    whole = newest.read_bytes()
    draws = np.random.default_rng(0)
    damaged = [whole[:size] for size in draws.integers(0, len(whole), number)]
    for place in draws.integers(0, len(whole), number):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(draws.integers(8))
        damaged.append(bytes(flipped))
    assert len(damaged) == 2 * number
    for content in damaged:
        newest.write_bytes(content)
        said = []
        assert load_checkpoint(folder, said.append)["step"] == before
        assert said == [
            f"{newest}: is damaged, its checksum differs; trying the checkpoint before it"
        ]


@pytest.mark.parametrize("manifest", [None, "", "[]", "{}", '{"sha256": 3}'])
def test_without_its_checksum_it_does_not_count(tmp_path, manifest):
    save(tmp_path, 1)
    path = list_checkpoints(tmp_path)[0].with_suffix(".json")
    path.unlink() if manifest is None else path.write_text(manifest)
    said = []
    assert load_checkpoint(tmp_path, said.append) is None
    assert len(said) == 1
    reason = "is missing" if manifest is None else "is damaged, its checksum differs"
    assert reason in said[0]


def test_a_file_that_is_not_there_is_called_missing(tmp_path):
    save(tmp_path, 1)
    path = list_checkpoints(tmp_path)[0]
    path.unlink()
    with pytest.raises(DataError, match=r"step-000000001\.pt: is missing"):
        load_tensors(path)


def test_code_never_runs(tmp_path):
    class Payload:
        def __reduce__(self):
            return pytest.fail, ("code ran",)

    save_tensors(tmp_path / "bad.pt", {"payload": Payload()})
    with pytest.raises(DataError, match=r"bad\.pt: holds no tensors that can be read safely$"):
        load_tensors(tmp_path / "bad.pt")


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("imae.train.run.FORMAT", 2)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(DataError, match="written by another version"):
        load_tensors(list_checkpoints(tmp_path)[0])


def test_the_manifest_holds_size_and_hash(tmp_path):
    save(tmp_path, 1)
    path = list_checkpoints(tmp_path)[0]
    manifest = json.loads(path.with_suffix(".json").read_text())
    assert manifest["bytes"] == path.stat().st_size
    assert len(manifest["sha256"]) == 64


def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ImaeError, match="cannot be written"):
        save(tmp_path / "file", 1)


def test_a_compressed_file_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "final.pt"
    save_tensors(path, {"weight": torch.zeros(1000)})
    with zipfile.ZipFile(path) as archive:
        members = {each.filename: archive.read(each) for each in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps({"sha256": sha256}))
    with pytest.raises(DataError, match="is compressed, which imae does not write"):
        load_tensors(path)
