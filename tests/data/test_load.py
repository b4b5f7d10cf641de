import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.data.batches import Batches
from imae.data.images import ArrayImages
from imae.data.loading import LAYOUTS, load
from imae.errors import ArgumentError, DataError

X = np.eye(4, dtype=np.float32)
Y = np.array([0, 1, 1, 0])


def test_a_name_is_a_known_set():
    data = load("digits")
    assert data.num_classes == 10
    assert isinstance(data.train.inputs, ArrayImages)


def test_a_path_wins_if_it_is_written_as_one(tmp_path, monkeypatch, photo):
    for label in ("a", "b"):
        photo(tmp_path / "digits" / label / "0.png")
    monkeypatch.chdir(tmp_path)
    assert load("digits").num_classes == 10
    assert load("./digits").class_names == load(Path("digits")).class_names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifr10", "^no such file or folder, and unknown data set 'cifr10'; did you mean cifar10"),
        ("gone/t.csv", r"^gone/t\.csv: no such file or folder$"),
        ("t.npz", r"^t\.npz: no such file or folder$"),
        ("zzzzzz", "no such file or folder, and unknown data set 'zzzzzz'; known: digits, "),
        ("a\0b", "no such file or folder, and unknown data set .a.x00b.; "),
        ("x" * 5000, "it is not a valid path"),
        (Path("digits"), "digits: no such file or folder; .* give only its name"),
    ],
)
def test_what_is_not_there_is_one_line(name, message):
    with pytest.raises(DataError, match=message) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_options_that_a_layout_does_not_take_are_refused(photo_folder):
    with pytest.raises(ArgumentError, match=r"layout 'folder' takes .*; got 'label_column'"):
        load(photo_folder, label_column="x")
    with pytest.raises(ArgumentError, match=r"data set 'digits' takes .*; got 'crop'"):
        load("digits", crop=3)
    with pytest.raises(ArgumentError, match="on_bad_image must be one of fail, skip"):
        load(photo_folder, on_bad_image="ignore")
    assert len(load(photo_folder, label_column=None).train) == 7


def test_tables_are_scaled_by_the_training_rows(tmp_path):
    path = write(tmp_path, "t.csv", "a,label,split\n1,x,train\n3,y,train\n5,x,test\n")
    data = load(path)
    assert data.train.inputs.values.ravel().tolist() == [-1, 1]
    assert data.test.inputs.values.ravel().tolist() == [3]


def test_small_images_can_be_read_into_memory(tmp_path, photo):
    for label in ("a", "b"):
        photo(tmp_path / "tiles" / label / "0.png", width=9, height=7)
    data = load(tmp_path / "tiles", in_memory=True)
    assert data.train.inputs.shape == (3, 7, 9)
    batch = data.train.inputs.batch(np.arange(2), generator=None)
    assert batch.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)


def test_bad_images_are_skipped_on_demand(photo_folder):
    (photo_folder / "dog" / "1.jpg").write_bytes(b"no image")
    assert len(load(photo_folder).train) == 7
    data = load(photo_folder, on_bad_image="skip")
    assert len(data.train) == 6
    assert [skipped.row_id for skipped in data.skipped] == ["dog/1.jpg"]


def test_every_layout_has_a_summary():
    assert [entry.name for entry in LAYOUTS] == ["folder", "manifest", "arrays"]
    assert all(entry.summary for entry in LAYOUTS)


def test_importing_needs_torch_and_numpy_alone():
    heavy = ["PIL", "sklearn", "pyarrow", "safetensors", "rich", "scipy"]
    code = (
        f"import sys, json, imae.data; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(run.stdout) == []


# Files that are odd and fine.


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


TABLE = "id,a,b,label\np,1,2,cat\nq,3,4,dog\nr,5,6,cat\n"

FINE = {
    "byte order mark": "\ufeff" + TABLE,
    "crlf": TABLE.replace("\n", "\r\n"),
    "no last line end": TABLE.rstrip("\n"),
    "emoji ids": TABLE.replace("p,", "🐈,"),
    "path-like ids": TABLE.replace("p,", "../../etc/passwd,"),
    "script ids": TABLE.replace("p,", "<script>alert(1)</script>,"),
    "formula ids": TABLE.replace("p,", "=1+1,"),
    "spaces around labels": TABLE.replace("cat", " cat "),
}


@pytest.mark.parametrize("content", FINE.values(), ids=FINE.keys())
def test_odd_tables_are_read(tmp_path, content):
    data = load(write(tmp_path, "t.csv", content))
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.train.row_ids.tolist()[1:] == ["q", "r"]


# Files that are not: each is one line that names the file, in little time and memory.


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "set.npz", **arrays)
    return folder / "set.npz"


def parquet(folder: Path, **columns: object) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "set.parquet")
    return folder / "set.parquet"


def cut(path: Path, keep: int) -> Path:
    path.write_bytes(path.read_bytes()[:keep])
    return path


def lying_header(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def bomb_npz(folder: Path) -> Path:
    """Four hundred megabytes of zeros in two."""
    packing = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
    with zipfile.ZipFile(folder / "set.npz", "w", **packing) as archive:
        archive.writestr("y.npy", npy(Y))
        with archive.open("x.npy", "w") as member:
            member.write(lying_header("(4, 10240, 10240)"))
            for _ in range(400):
                member.write(bytes(2**20))
    return folder / "set.npz"


def header_npz(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "set.npz", "w") as archive:
        archive.writestr("x.npy", lying_header("(1000000000, 32, 32)") + bytes(64))
        archive.writestr("y.npy", npy(Y))
    return folder / "set.npz"


def header_npy(folder: Path) -> Path:
    write(folder, "y.npy", npy(Y))
    return write(folder, "x.npy", lying_header("(1000000000, 32, 32)") + bytes(64))


def flipped_npz(folder: Path) -> Path:
    path = npz(folder, x=np.zeros((200, 8)), y=np.arange(200) % 2)
    content = bytearray(path.read_bytes())
    content[3000] ^= 64
    path.write_bytes(content)
    return path


def pickled_npz(folder: Path) -> Path:
    return npz(folder, x=np.array([object()] * 4), y=Y)


def pickled_npy(folder: Path) -> Path:
    np.save(folder / "y.npy", Y)
    np.save(folder / "x.npy", np.array([{}] * 4), allow_pickle=True)
    return folder / "x.npy"


def bare_pickle(folder: Path) -> Path:
    return write(folder, "set.npz", b"\x80\x04cposix\nsystem\n(S'touch ran'\ntR.")


def bomb_png() -> bytes:
    """Sixty thousand by sixty thousand pixels, in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


def pets(folder: Path) -> Path:
    """The two classes that the fixture wrote."""
    return folder / "pets"


def spoilt(name: str, content: bytes | None):
    """Pets of which one image has this content, or is cut in half."""

    def make(folder: Path) -> Path:
        path = pets(folder) / name
        path.write_bytes(
            path.read_bytes()[: path.stat().st_size // 2] if content is None else content
        )
        return pets(folder)

    return make


def huge_image(folder: Path) -> Path:
    (pets(folder) / "cat" / "bomb.png").write_bytes(bomb_png())
    return pets(folder)


def large_image(folder: Path) -> Path:
    content = bomb_png().replace(struct.pack(">II", 60_000, 60_000), b"")
    header = struct.pack(">II", 10_000, 10_000)
    body = b"IHDR" + header + b"\x08\x02\x00\x00\x00"
    start = content[:8] + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    (pets(folder) / "cat" / "large.png").write_bytes(start + content[content.index(b"IDAT") - 4 :])
    return pets(folder)


def empty_class(folder: Path) -> Path:
    (pets(folder) / "owl").mkdir()
    return pets(folder)


def only_class(folder: Path) -> Path:
    shutil.rmtree(pets(folder) / "dog")
    return pets(folder)


def no_train(folder: Path) -> Path:
    (folder / "all").mkdir()
    pets(folder).rename(folder / "all" / "test")
    return folder / "all"


def unseen_class(folder: Path) -> Path:
    shutil.copytree(pets(folder), folder / "all" / "train")
    shutil.copytree(pets(folder), folder / "all" / "test")
    (folder / "all" / "test" / "cat").rename(folder / "all" / "test" / "owl")
    return folder / "all"


def mixed_folders(folder: Path) -> Path:
    for name in ("train", "test", "pets"):
        shutil.copytree(pets(folder), folder / "all" / name)
    return folder / "all"


def name_in_latin(folder: Path) -> Path:
    shutil.copy(pets(folder) / "cat" / "0.jpg", os.fsencode(pets(folder) / "cat") + b"/caf\xe9.jpg")
    return pets(folder)


def linked_image(folder: Path) -> Path:
    (folder / "secret.jpg").write_bytes(b"secret")
    (pets(folder) / "cat" / "link.jpg").symlink_to(folder / "secret.jpg")
    return pets(folder)


def table(content: str | bytes, name: str = "set.csv"):
    return lambda folder: write(folder, name, content)


def listing(*paths: str):
    """A list of images in the folder of the pets."""
    rows = "".join(f"{path},{'cat' if index % 2 else 'dog'}\n" for index, path in enumerate(paths))
    return lambda folder: write(pets(folder), "set.csv", f"path,label\n{rows}")


def linked_listing(folder: Path) -> Path:
    (folder / "secret.jpg").write_bytes(b"secret")
    (pets(folder) / "link.jpg").symlink_to(folder / "secret.jpg")
    return listing("cat/0.jpg", "link.jpg")(folder)


def piped_listing(folder: Path) -> Path:
    os.mkfifo(pets(folder) / "pipe.jpg")
    return listing("cat/0.jpg", "pipe.jpg")(folder)


def many_rows_parquet(folder: Path) -> Path:
    path = folder / "set.parquet"
    block = pyarrow.table({"x": np.zeros(2**20, np.int64), "label": np.zeros(2**20, np.int64)})
    with pyarrow.parquet.ParquetWriter(path, block.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(block)
    return path


def repeated_text_parquet(folder: Path) -> Path:
    words = pyarrow.DictionaryArray.from_arrays(np.arange(600) // 599, ["a" * 2**20, "b"])
    return parquet(folder, text=words, label=["x", "y"] * 300)


def other_packing_npz(folder: Path) -> Path:
    """A packing that Python unpacks whole, whatever size a member claims."""
    with zipfile.ZipFile(folder / "set.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("y.npy", npy(Y))
        archive.writestr("x.npy", bytes(1 << 20))
    return folder / "set.npz"


BAD = {
    "npz cut": (lambda f: cut(npz(f, x=X, y=Y), 300), r"set\.npz: is damaged"),
    "npz of 0 bytes": (table("", "set.npz"), r"set\.npz: is damaged"),
    "npz that is text": (table("hello", "set.npz"), r"set\.npz: is damaged"),
    "npz with a flipped bit": (flipped_npz, r"set\.npz, array 'x': is damaged"),
    "npz bomb": (bomb_npz, r"set\.npz, array 'x': would unpack .* refused"),
    "npz of another packing": (other_packing_npz, r"set\.npz, array 'x': is compressed in a way"),
    "npz header of 10^9 rows": (header_npz, r"set\.npz, array 'x': shape .* there are 64"),
    "npz of objects": (pickled_npz, r"set\.npz, array 'x': holds Python objects"),
    "npz that is a pickle": (bare_pickle, r"set\.npz: is damaged"),
    "npz without labels": (lambda f: npz(f, x=X), r"set\.npz: needs one array called y"),
    "npz without inputs": (lambda f: npz(f, y=Y), r"set\.npz: needs one array called x"),
    "npz labels too short": (lambda f: npz(f, x=X, y=Y[:3]), r"4 rows of inputs but y of shape"),
    "npz label ignored": (lambda f: npz(f, x=X, y=Y - 100), r"row '0': label -100 means no label"),
    "npz label beyond the names": (
        lambda f: npz(f, x=X, y=Y * 2, class_names=np.array(["a", "b"])),
        r"row '1': label 2 is not one of the classes",
    ),
    "npz label of half": (lambda f: npz(f, x=X, y=Y / 2), r"row '1': label 0.5 is neither"),
    "npz one class": (lambda f: npz(f, x=X, y=Y * 0), r"set\.npz: 0 is the only class"),
    "npz nan": (lambda f: npz(f, x=X * np.nan, y=Y), r"row 0 .* holds nan"),
    "npz doubled ids": (
        lambda f: npz(f, x=X, y=Y, row_ids=np.array(list("abca"))),
        r"row id 'a' appears twice, in rows 0 and 3",
    ),
    "npz float images": (lambda f: npz(f, x=np.zeros((4, 8, 8)), y=Y), r"images must be uint8"),
    "npz of five dimensions": (
        lambda f: npz(f, x=np.zeros((4, 1, 1, 1, 1), np.uint8), y=Y),
        r"inputs of shape \(4, 1, 1, 1, 1\)",
    ),
    "npz of no features": (lambda f: npz(f, x=X[:, :0], y=Y), r"shape \(4, 0\) have no features"),
    "npz of no rows": (lambda f: npz(f, x=X[:0], y=Y[:0]), r"no rows to train on"),
    "npy cut": (
        lambda f: (write(f, "y.npy", npy(Y)), cut(write(f, "x.npy", npy(X)), 150))[1],
        r"x\.npy: shape .* there are 22",
    ),
    "npy of 0 bytes": (table("", "x.npy"), r"x\.npy: is empty"),
    "npy header of 10^9 rows": (header_npy, r"x\.npy: shape \(1000000000, 32, 32\)"),
    "npy of objects": (pickled_npy, r"x\.npy: holds Python objects"),
    "npy without labels": (table(npy(X), "x.npy"), r"x\.npy: needs one array called y"),
    "parquet cut": (
        lambda f: cut(parquet(f, a=[1.0, 2.0], label=["x", "y"]), 200),
        r"set\.parquet: is cut off",
    ),
    "parquet of 0 bytes": (table("", "set.parquet"), r"set\.parquet: is empty"),
    "parquet null label": (
        lambda f: parquet(f, a=[1.0, 2.0, 3.0], label=["x", "y", None]),
        r"set\.parquet: row '2': the label is missing",
    ),
    "parquet empty feature": (
        lambda f: parquet(f, a=[None, None], label=["x", "y"]),
        r"set\.parquet: no column is left to learn from; column 'a' is not used: it is empty",
    ),
    "parquet of one text, often": (repeated_text_parquet, r"set\.parquet: would unpack .* refused"),
    "parquet of lists": (
        lambda f: parquet(f, a=[[1.0], [2.0]], label=["x", "y"]),
        r"set\.parquet: column 'a' holds list",
    ),
    "parquet of too many rows": (many_rows_parquet, r"set\.parquet: would unpack .* refused"),
    "csv of 0 bytes": (table(""), r"set\.csv: is empty"),
    "csv of a header alone": (table("a,label\n"), r"set\.csv: has a header and no rows"),
    "csv cut in a row": (table("a,b,label\n1,2,x\n3,4"), r"set\.csv: line 3 has 2 cells"),
    "csv cut in a quote": (table('text,label\na,x\n"b'), r"set\.csv: line 3: unexpected end"),
    "csv not utf-8": (table("a,label\n1,größe\n".encode("latin-1")), r"set\.csv: is not UTF-8"),
    "csv utf-16": (table("a,label\n1,x\n".encode("utf-16")[:-1]), r"set\.csv: is not UTF-16"),
    "csv nul": (table("a,label\n1,x\0\n"), r"set\.csv: line 2 holds a NUL"),
    "csv is an image": (table(b"\x89PNG\r\n\x1a\n\0\0"), r"set\.csv: is not UTF-8"),
    "csv without a label column": (table("a,b\n1,2\n"), r"set\.csv: line 1 has no column label"),
    "csv with two separators": (
        table("a;b,c\n1;x,2\n"),
        r"set\.csv: line 1 has no column label .*; columns: 'a;b', 'c'",
    ),
    "csv doubled column": (table("a,a,label\n1,2,x\n"), r"set\.csv: two columns are named 'a'"),
    "csv unnamed column": (table(",a,label\n0,1,x\n"), r"set\.csv: column 1 has no name"),
    "csv missing label": (table("a,label\n1,x\n2,\n3,y\n"), r"row '1': the label is missing"),
    "csv infinity": (table("a,label\n1e999,x\n2,y\n"), r"set\.csv: line 2, column 'a' is inf"),
    "csv word for a number": (
        table("a,label\n1,x\n2,y\none,x\n"),
        r"set\.csv: line 4, column 'a': 'one' is not a number",
    ),
    "csv doubled ids": (table("id,a,label\np,1,x\np,2,y\n"), r"row id 'p' appears twice"),
    "csv missing id": (table("id,a,label\np,1,x\n,2,y\n"), r"set\.csv: row 1 .* has no id"),
    "csv endless id": (
        table(f"id,a,label\np,1,x\n{'q' * 10_000},2,y\n"),
        r"set\.csv: row 1 .* id of 10000 characters",
    ),
    "csv one class": (table("a,label\n1,x\n2,x\n"), r"set\.csv: 'x' is the only class"),
    "csv unseen label": (
        table("a,label,split\n1,x,train\n2,y,train\n3,z,test\n"),
        r"set\.csv: row '2': label 'z' was never seen in training",
    ),
    "csv unknown split": (
        table("a,label,split\n1,x,train\n2,y,later\n"),
        r"set\.csv: row '1': split 'later'",
    ),
    "csv nothing to train on": (
        table("a,label,split\n1,x,test\n2,y,test\n"),
        r"set\.csv: there are no rows to train on",
    ),
    "csv negative weight": (
        table("a,label,weight\n1,x,1\n2,y,-1\n"),
        r"set\.csv: weight of row '1'",
    ),
    "csv missing clean label": (
        table("a,label,clean_label\n1,x,y\n2,y,\n"),
        r"set\.csv: row '1': the label is missing",
    ),
    "list leaves by dots": (listing("cat/0.jpg", "../../x.jpg"), r"set\.csv: row 1 .* outside"),
    "list leaves by root": (listing("cat/0.jpg", "/etc/passwd"), r"set\.csv: row 1 .* outside"),
    "list leaves by link": (linked_listing, r"set\.csv: row 1 .* outside"),
    "list of a missing image": (listing("cat/0.jpg", "cat/x.jpg"), r"set: row 'cat/x\.jpg': "),
    "list of a pipe": (piped_listing, r"set: row 'pipe\.jpg': .* not a regular file"),
    "list of a folder": (listing("cat/0.jpg", "dog"), r"set: row 'dog': .* not a regular file"),
    "list with a doubled path": (listing("cat/0.jpg", "cat/0.jpg"), r"appears twice"),
    "list with an empty path": (listing("cat/0.jpg", " "), r"set\.csv: row 1 .* no usable path"),
    "image cut": (spoilt("cat/1.jpg", None), r"cat/1\.jpg: cannot be read as an image"),
    "image of 0 bytes": (spoilt("cat/1.jpg", b""), r"cat/1\.jpg: is empty"),
    "image that is text": (spoilt("cat/1.jpg", b"hello"), r"cat/1\.jpg: cannot be read"),
    "image that is postscript": (
        spoilt("cat/1.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        r"cat/1\.jpg: cannot be read",
    ),
    "image bomb": (huge_image, r"cat/bomb\.png: cannot be read .*pixels"),
    "image far too large": (large_image, r"cat/large\.png: 10000 x 10000 pixels are more"),
    "image behind a link": (linked_image, r"pets: row .* points outside"),
    "empty class folder": (empty_class, r"owl: class folder holds no image"),
    "one class folder": (only_class, r"pets: 'cat' is the only class"),
    "no training folder": (no_train, r"all: has folders test but none called train"),
    "class only in test": (unseen_class, r"row 'test/owl/0\.jpg': label 'owl' was never seen"),
    "file of another kind": (table("x", "set.txt"), r"set\.txt: is neither a folder nor"),
    "split folders beside others": (mixed_folders, r"all: has test, train and also pets; move"),
    "name that is not utf-8": (name_in_latin, r"pets: row .* has an id that is not UTF-8"),
    "folder of nothing": (lambda f: f / "pets" / "cat", r"cat: holds no class folders"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line(tmp_path, photo_folder, make, message):
    assert photo_folder.is_dir()
    path = make(tmp_path)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()  # another program's load is not ours
    with pytest.raises(DataError, match=message) as caught:
        read_once(path)
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500 * 1024
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value) or path.stem in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_good_input_passes_the_same_test(tmp_path, photo_folder):
    for path in (
        photo_folder,
        npz(tmp_path, x=X, y=Y),
        parquet(tmp_path, a=[1.0, 2.0], label=["x", "y"]),
        write(tmp_path, "set.csv", TABLE),
        listing("cat/0.jpg", "dog/0.jpg")(tmp_path),
    ):
        assert read_once(path) > 0
    assert len(BAD) >= 40


def read_once(path: Path) -> int:
    """Opens the data and reads every row of it once."""
    data = load(path)
    return sum(
        len(batch)
        for split in data.splits().values()
        for batch in Batches(split, 4, seed=1, shuffle=False).epoch(0)
    )


def test_digits_that_float32_would_lose_are_kept_until_the_scale_is_known(tmp_path):
    label = np.arange(20) % 2
    seconds = 1_700_000_000 + 30 * label
    path = tmp_path / "times.csv"
    rows = "".join(f"{a},{b}\n" for a, b in zip(label, seconds, strict=True))
    path.write_text("label,seconds\n" + rows)
    np.savez(path.with_suffix(".npz"), x=seconds[:, None], y=label)
    for name in (path, path.with_suffix(".npz")):
        values = load(name).train.inputs.values
        assert values.dtype == np.float32
        assert values.ravel().tolist() == (2.0 * label - 1).tolist()
