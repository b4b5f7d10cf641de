import io
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from imae.data.sources.cifar_n import read_label_file
from imae.errors import DataError

LABELS = {"clean_label": np.array([0, 9, 4]), "worse_label": np.array([3, 9, 1])}


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(value: object) -> bytes:
    file = io.BytesIO()
    np.save(file, value)  # type: ignore[arg-type]
    return file.getvalue()


def saved(value: object, *, is_zip: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_zip)
    return file.getvalue()


def zipped(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


GOOD = {
    "numpy archive": ("labels.npz", npz(**LABELS)),
    "saved dictionary": ("labels.npy", npy(LABELS)),
    "torch": ("labels.pt", saved(LABELS)),
    "old torch": ("labels.pt", saved(LABELS, is_zip=False)),
}


@pytest.mark.parametrize(("name", "data"), GOOD.values(), ids=GOOD)
def test_every_format(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    labels = read_label_file(tmp_path / name)
    assert labels.keys() == LABELS.keys()
    for key, array in labels.items():
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array, LABELS[key])


class Program:
    """Pickles as a call that leaves a mark."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.marker, "w")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", "old.pt"])
def test_programs_do_not_run(tmp_path: Path, suffix: str) -> None:
    marker = tmp_path / "ran"
    value = {"clean_label": Program(marker)}
    files = {
        ".npy": npy(value),
        ".npz": zipped({"clean.npy": npy(value)}),
        ".pt": saved(value),
        "old.pt": saved(value, is_zip=False),
    }
    path = tmp_path / f"labels{suffix}"
    path.write_bytes(files[suffix])
    marker.unlink(missing_ok=True)
    with pytest.raises(DataError, match="refused, not the plain pickle"):
        read_label_file(path)
    assert not marker.exists()


def header(text: str) -> bytes:
    """A version 1 npy header with this description."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def encrypted(data: bytes) -> bytes:
    """A zip file whose first member says that it is encrypted."""
    flags = data.index(b"PK\x01\x02") + 8
    return data[:flags] + b"\x01" + data[flags + 1 :]


HUGE = header("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000,), }\n")
BAD = {
    "empty npz": ("f.npz", b""),
    "empty npy": ("f.npy", b""),
    "empty pt": ("f.pt", b""),
    "text": ("f.npz", b"not a zip file"),
    "cut off npz": ("f.npz", GOOD["numpy archive"][1][:-30]),
    "cut off npy": ("f.npy", GOOD["saved dictionary"][1][:-30]),
    "cut off pt": ("f.pt", GOOD["torch"][1][:-30]),
    "cut off header": ("f.npy", HUGE[:20]),
    "a billion rows": ("f.npz", zipped({"clean.npy": HUGE + b"x"})),
    "zip bomb": ("f.npz", zipped({"clean.npy": bytes(40 << 20)})),
    "many members": ("f.npz", zipped({f"{number}.npy": npy(np.zeros(1)) for number in range(101)})),
    "floats": ("f.npz", npz(clean=np.zeros(3))),
    "a table": ("f.npz", npz(clean=np.zeros((3, 2), np.uint8))),
    "negative label": ("f.npz", npz(clean=np.array([0, -1]))),
    "label above a byte": ("f.npz", npz(clean=np.array([0, 256]))),
    "array, not a dictionary": ("f.npy", npy(np.zeros(3, np.uint8))),
    "dictionary of numbers": ("f.npy", npy({"clean": 3})),
    "zip without a pickle": ("f.pt", zipped({"readme": b"x"})),
    "torch tensors": ("f.pt", saved({"clean": torch.zeros(3, dtype=torch.uint8)})),
    "encrypted": ("f.npz", encrypted(GOOD["numpy archive"][1])),
    "damaged name": (
        "f.npz",
        zipped({"größe.npy": npy(np.zeros(1))}).replace("ö".encode(), b"\xff\xff"),
    ),
    "damaged code": ("f.npz", GOOD["numpy archive"][1].replace(b"NUMPY", b"NUMPX")),
}


@pytest.mark.parametrize(("name", "data"), BAD.values(), ids=BAD)
def test_bad_file_is_one_line_that_names_it(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError) as error:
        read_label_file(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_second_version_of_npy(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([3, 1], np.uint8), version=(2, 0))
    (tmp_path / "f.npz").write_bytes(zipped({"clean.npy": file.getvalue()}))
    assert read_label_file(tmp_path / "f.npz")["clean"].tolist() == [3, 1]


def test_largest_label_is_255(tmp_path: Path) -> None:
    (tmp_path / "f.npz").write_bytes(npz(clean=np.array([0, 255])))
    assert read_label_file(tmp_path / "f.npz")["clean"].tolist() == [0, 255]


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    (tmp_path / "f.npy").write_bytes(npy(np.zeros((16 << 20), np.uint8)))
    with pytest.raises(DataError, match="which no label file has"):
        read_label_file(tmp_path / "f.npy")


def test_a_python_2_dictionary_has_names_too(tmp_path: Path) -> None:
    inner = pickle.dumps({b"clean_label": np.array([1, 2])}, 2)
    (tmp_path / "f.pt").write_bytes(zipped({"archive/data.pkl": inner}))
    assert read_label_file(tmp_path / "f.pt")["clean_label"].tolist() == [1, 2]


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_says_it_is_small_does_not_fill_the_memory(
    tmp_path: Path, packing: int
) -> None:
    size = 60 << 20
    data = zipped({"clean.npy": bytes(size)}, packing)
    path = tmp_path / "f.npz"
    path.write_bytes(data.replace(size.to_bytes(4, "little"), (200).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"f\.npz"):
        read_label_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20  # the most that a file may have is set aside before it is read
