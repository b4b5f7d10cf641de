import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imae.data.sources import cifar_n
from imae.data.sources.cifar import CIFAR10, CIFAR100
from imae.data.sources.cifar_n import CIFAR10N, CIFAR100N, cifar10n, cifar100n
from imae.data.sources.image_set import array_digest
from imae.errors import ArgumentError, DataError
from imae.noise.asymmetric import CIFAR100_COARSE

REAL = Path(os.environ.get("IMAE_TEST_DATA", "nowhere"))
Arrays = dict[str, np.ndarray]


@pytest.fixture
def columns(small_cifar: Arrays) -> Arrays:
    clean = small_cifar["train_labels"]
    return {"clean": clean, "worst": (clean + 1) % 10, "aggregate": clean.copy()}


@pytest.fixture
def folder(
    tmp_path: Path,
    writers: Any,
    small_cifar: Arrays,
    columns: Arrays,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A root with small images, and CIFAR-10N as if its labels were these."""
    files = writers.cifar10_binary(small_cifar)
    members = {f"cifar-10-batches-bin/{name}": data for name, data in files.items()}
    writers.tar(tmp_path / "cifar10" / "cifar-10-binary.tar.gz", members)
    images = replace(
        CIFAR10, digests={name: array_digest(array) for name, array in small_cifar.items()}
    )
    digests = {name: array_digest(array) for name, array in columns.items()}
    monkeypatch.setattr(cifar_n, "CIFAR10N", replace(CIFAR10N, images=images, digests=digests))
    return tmp_path


@pytest.mark.parametrize("place", ["cifar10n.npz", "cifar10n/cifar10n.npz"])
def test_given_and_clean_labels(folder: Path, columns: Arrays, place: str) -> None:
    (folder / "cifar10n").mkdir()
    np.savez(folder / place, **columns)
    data = cifar10n(folder)
    assert data.name == "cifar10n"
    np.testing.assert_array_equal(data.train.labels, columns["worst"])
    np.testing.assert_array_equal(data.train.clean_labels, columns["clean"])
    assert data.test is not None
    assert data.test.clean_labels is None
    np.testing.assert_array_equal(cifar10n(folder, "aggregate").train.labels, columns["clean"])


def test_official_names(folder: Path, columns: Arrays) -> None:
    official = {"clean_label": columns["clean"], "worse_label": columns["worst"].astype(np.int64)}
    np.save(folder / "CIFAR-10_human.npy", official)  # type: ignore[arg-type]
    np.testing.assert_array_equal(cifar10n(folder).train.labels, columns["worst"])
    with pytest.raises(DataError, match=r"CIFAR-10_human\.npy: has no array of aggregate labels"):
        cifar10n(folder, variant="aggregate")


def test_verify_covers_images_and_labels(folder: Path, columns: Arrays) -> None:
    item = cifar_n.CIFAR10N
    assert item.locate(folder) is None
    np.savez(folder / "cifar10n.npz", **columns)
    assert item.locate(folder) == folder / "cifar10n.npz"
    assert item.verify(folder) == {**item.images.digests, **item.digests}


def test_locate_needs_the_images_too(folder: Path, columns: Arrays) -> None:
    np.savez(folder / "cifar10n.npz", **columns)
    (folder / "cifar10" / "cifar-10-binary.tar.gz").unlink()
    assert cifar_n.CIFAR10N.locate(folder) is None


def test_missing_label_file(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"cifar10n: none of .* get one with `imae data fetch cifar10n --root "
    ):
        cifar10n(folder)


def test_other_labels_are_refused(folder: Path, columns: Arrays) -> None:
    columns["worst"][0] ^= 1
    np.savez(folder / "cifar10n.npz", **columns)
    with pytest.raises(DataError, match=r"worst of shape .* are not the published ones"):
        cifar10n(folder)


def test_labels_must_belong_to_the_images(folder: Path, columns: Arrays) -> None:
    columns["clean"] = columns["clean"][::-1].copy()
    np.savez(folder / "cifar10n.npz", **columns)
    digests = {name: array_digest(array) for name, array in columns.items()}
    item = replace(cifar_n.CIFAR10N, digests=digests)
    with pytest.raises(DataError, match="clean labels are not those of cifar10"):
        item.data(folder, given="worst")


def test_clean_labels_must_be_there(folder: Path, columns: Arrays) -> None:
    np.savez(folder / "cifar10n.npz", worst=columns["worst"])
    with pytest.raises(DataError, match="no array of clean labels"):
        cifar10n(folder)


def test_cifar100n_in_classes_and_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.Generator(np.random.PCG64(4))
    groups = np.array(CIFAR100_COARSE, np.uint8)
    fine = {part: generator.integers(0, 100, 5, np.uint8) for part in ("train", "test")}
    for part, labels in fine.items():
        pixels = np.zeros((5, 3072), np.uint8)
        rows = np.concatenate([groups[labels][:, None], labels[:, None], pixels], axis=1)
        (tmp_path / f"{part}.bin").write_bytes(rows.tobytes())
    noisy = generator.integers(0, 100, 5, np.uint8)
    columns = {"clean_label": fine["train"], "noise_label": noisy}
    np.save(tmp_path / "CIFAR-100_human.npy", columns)  # type: ignore[arg-type]
    item = replace(
        CIFAR100N,
        images=replace(CIFAR100, digests={}),
        digests={"clean": array_digest(fine["train"]), "noisy": array_digest(noisy)},
    )
    monkeypatch.setattr(cifar_n, "CIFAR100N", item)
    data = cifar100n(tmp_path)
    np.testing.assert_array_equal(data.train.labels, noisy)
    data = cifar100n(tmp_path, variant="coarse")
    assert data.num_classes == 20
    np.testing.assert_array_equal(data.train.labels, groups[noisy])
    np.testing.assert_array_equal(data.train.clean_labels, groups[fine["train"]])
    assert data.test is not None
    np.testing.assert_array_equal(data.test.labels, groups[fine["test"]])


def test_unknown_variants() -> None:
    with pytest.raises(ArgumentError, match="variant must be one of worst, aggregate"):
        cifar10n(variant="best")
    with pytest.raises(ArgumentError, match="variant must be one of fine, coarse"):
        cifar100n(variant="worst")


RATES = {"worst": 0.402, "aggregate": 0.090, "random1": 0.172, "random2": 0.181, "random3": 0.176}


@pytest.mark.skipif(
    CIFAR10N.locate(REAL) is None, reason="IMAE_TEST_DATA names no folder with cifar10n"
)
def test_real_cifar10n_has_the_published_rates() -> None:
    labels = CIFAR10N.read(REAL)
    for name, rate in RATES.items():
        assert (labels[name] != labels["clean"]).mean() == pytest.approx(rate, abs=5e-4)
    split = cifar10n(REAL).train
    assert (split.labels != split.clean_labels).mean() == pytest.approx(0.402, abs=5e-4)


@pytest.mark.skipif(
    CIFAR100N.locate(REAL) != REAL / "cifar100n.npz",
    reason="IMAE_TEST_DATA names no folder with cifar100 and cifar100n.npz",
)
@pytest.mark.parametrize(("variant", "num_classes"), [("fine", 100), ("coarse", 20)])
def test_real_cifar100n(variant: str, num_classes: int) -> None:
    data = cifar100n(REAL, variant)
    assert data.num_classes == num_classes
    suffix = "_coarse" if variant == "coarse" else ""
    with np.load(REAL / "cifar100n.npz") as file:
        np.testing.assert_array_equal(data.train.labels, file[f"noisy{suffix}"])
        np.testing.assert_array_equal(data.train.clean_labels, file[f"clean{suffix}"])
    assert data.test is not None
    test_labels = CIFAR100.read(REAL)["test_coarse" if suffix else "test_labels"]
    np.testing.assert_array_equal(data.test.labels, test_labels)
    rate = (data.train.labels != data.train.clean_labels).mean()
    assert rate == pytest.approx(0.264 if suffix else 0.402, abs=5e-4)
