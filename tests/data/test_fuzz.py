"""Files of any bytes: the readers return data or raise one clear line, never anything else."""

import csv
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from imae.data.arrays import read_npy, read_npz
from imae.data.image_files import decode
from imae.data.loading import load
from imae.data.preparation import without_rows
from imae.data.sources.archive import unpickle
from imae.data.sources.cifar_n import read_label_file
from imae.data.sources.digits import read_idx
from imae.data.sources.photo_sets import read_mat
from imae.errors import DataError
from imae.noise import read_manifest, symmetric, write_manifest

pytestmark = pytest.mark.slow
RUNS = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def parquet(**columns: list[object]) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def image(suffix: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGBA" if suffix == "png" else "RGB", (8, 6), "red").save(file, suffix)
    return file.getvalue()


def labels(folder: Path) -> bytes:
    noisy = symmetric([0, 1, 2, 0], rate=0.5, num_classes=3, seed=1)
    write_manifest(folder / "labels.csv", noisy, [0, 1, 2, 0], list("abcd"))
    return (folder / "labels.csv").read_bytes()


def mat(folder: Path) -> bytes:
    savemat(folder / "x.mat", {"query_IDX": np.arange(6).reshape(2, 3)})
    return (folder / "x.mat").read_bytes()


IDX = bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3])
TABLE = b"id,age,colour,joined,label\na,1,red,2024-01-01,x\nb,,blue,,y\nc,3,red,2024-02-01,x\n"
READERS = {
    "csv": ("x.csv", lambda _: TABLE, load),
    "tsv": ("x.tsv", lambda _: TABLE.replace(b",", b"\t"), load),
    "npz": ("x.npz", lambda _: npz(x=np.eye(4), y=np.arange(4) % 2), load),
    "npz arrays": ("x.npz", lambda _: npz(x=np.eye(4)), lambda path: read_npz(path, ["x"])),
    "npy": ("x.npy", lambda _: npy(np.eye(3)), read_npy),
    "parquet": ("x.parquet", lambda _: parquet(a=[1.5, None], b=["u", "v"], y=[0, 1]), load),
    "png": ("x.png", lambda _: image("png"), decode),
    "jpeg": ("x.jpg", lambda _: image("jpeg"), decode),
    "gif": ("x.gif", lambda _: image("gif"), decode),
    "manifest": ("x.csv", labels, read_manifest),
    "label npz": ("x.npz", lambda _: npz(clean=np.arange(4, dtype=np.uint8)), read_label_file),
    "mat": ("x.mat", mat, read_mat),
    "idx": ("x", lambda _: IDX, lambda path: read_idx(path.read_bytes(), source="x")),
    "pickle": (
        "x",
        lambda _: pickle.dumps({b"labels": [1, 2]}, protocol=2),
        lambda path: unpickle(path.read_bytes(), source="x"),
    ),
}


def changed(content: bytes, data: st.DataObject) -> bytes:
    """The file with some bytes changed, cut off, repeated or put in."""
    result = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(result) - 1, 0)))
        kind = data.draw(st.sampled_from(["byte", "cut", "insert", "repeat"]))
        if kind == "byte" and result:
            result[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del result[place : place + data.draw(st.integers(1, 64))]
        elif kind == "insert":
            result[place:place] = data.draw(st.binary(max_size=16))
        else:
            result[place:place] = result[place : place + 32]
    return bytes(result)


def problem(read, *arguments: object) -> str:
    """The message of the error that reading ends with, or nothing; other errors are raised."""
    try:
        read(*arguments)
    except DataError as error:
        return str(error)
    return ""


def check(read, *arguments: object) -> None:
    message = problem(read, *arguments)
    assert "\n" not in message
    assert len(message) < 2000


@pytest.mark.parametrize("name", READERS)
@RUNS
@given(data=st.data())
def test_damaged_files(tmp_path, name, data):
    file_name, make, reader = READERS[name]
    original = tmp_path / "original"
    path = tmp_path / file_name
    if not original.exists():
        original.write_bytes(make(tmp_path))
        path.write_bytes(original.read_bytes())
        assert problem(reader, path) == ""  # the undamaged file can be read
    path.write_bytes(changed(original.read_bytes(), data))
    check(reader, path)


@pytest.mark.parametrize("name", READERS)
@RUNS
@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path, name, content):
    file_name, _, reader = READERS[name]
    (tmp_path / file_name).write_bytes(content)
    check(reader, tmp_path / file_name)


@RUNS
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(
                st.text(max_size=8),
                st.floats().map(repr),
                st.dates().map(str),
                st.sampled_from(["", "NA", "true", "inf", "1e999"]),
            ),
            st.sampled_from(["x", "y"]),
        ),
        min_size=2,
        max_size=30,
    )
)
@example(rows=[("2024-01-01", "x"), ("9999-12-31", "y")])
def test_tables_of_any_cells(tmp_path, rows):
    path = tmp_path / "x.csv"
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file).writerows([("a", "label"), *rows])
    check(load, path)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)


@RUNS
@given(
    kind=st.sampled_from(["images", "features", "texts", "tensors", "x"]),
    values=st.dictionaries(
        st.sampled_from(
            ["mean", "std", "shape", "columns", "encoding", "num_features", "weights", "crop"]
        ),
        JSON,
    ),
)
def test_preparations_of_any_values(kind, values):
    check(without_rows, {"kind": kind, **json.loads(json.dumps(values))})
