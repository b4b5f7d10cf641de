import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from imae.data.arrays import check_unpacked, read_npy, read_npz
from imae.errors import DataError

ARRAYS = [
    np.arange(12).reshape(3, 4),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.array(["größe", "🐈"]),
    np.array([b"a", b"bc"]),
    np.array(3.5),
    np.empty((0, 4), np.float32),
    np.arange(5, dtype=">i4"),
    np.array([True, False]),
]


def packed(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_round_trip(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    np.savez_compressed(tmp_path / "y.npz", x=array)
    for found in (
        read_npy(tmp_path / "x.npy"),
        read_npz(tmp_path / "x.npz", ["x"])["x"],
        read_npz(tmp_path / "y.npz", ["x"])["x"],
    ):
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert np.array_equal(found, array)


def test_only_the_arrays_asked_for_are_read(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(3), gadget=np.array([object()]))
    assert list(read_npz(tmp_path / "x.npz", ["x", "absent"])) == ["x"]


def test_python_objects_are_refused_and_not_run(tmp_path):
    class Gadget:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    np.save(tmp_path / "x.npy", np.array([Gadget()]), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([Gadget()]))
    with pytest.raises(DataError, match=r"x\.npy: holds Python objects"):
        read_npy(tmp_path / "x.npy")
    with pytest.raises(DataError, match="array 'x': holds Python objects"):
        read_npz(tmp_path / "x.npz", ["x"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("cut", [0, 3, 8, 40, 127, 128, 135])
def test_every_cut_is_noticed(tmp_path, cut):
    whole = packed(np.arange(1))
    assert len(whole) == 136
    path = tmp_path / "x.npy"
    path.write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"x\.npy"):
        read_npy(path)


def test_bytes_beyond_the_array_are_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(packed(np.arange(3)) + b"\0")
    with pytest.raises(DataError, match="needs 24 bytes, but there are 25"):
        read_npy(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,), }",
        "__import__('os')",
        "(",
    ],
)
def test_lying_headers_are_refused(tmp_path, header):
    text = header.ljust(117) + "\n"
    path = tmp_path / "x.npy"
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"x" * 8
    )
    with pytest.raises(DataError, match=r"x\.npy") as caught:
        read_npy(path)
    assert "\n" not in str(caught.value)


def test_a_newer_format_is_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x03\x00" + packed(np.arange(3))[8:])
    with pytest.raises(DataError, match=r"version \(3, 0\)"):
        read_npy(tmp_path / "x.npy")


def test_a_flipped_bit_is_noticed_by_the_checksum(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="array 'x': is damaged"):
        read_npz(path, ["x"])


def test_a_flipped_bit_in_packed_data_is_noticed(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.random.Generator(np.random.PCG64(1)).random(500))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match="array 'x': is damaged"):
        read_npz(path, ["x"])


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_doubled_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for _ in range(2):
            archive.writestr("x.npy", packed(np.arange(3)))
    with pytest.raises(DataError, match="array 'x' is in the file twice"):
        read_npz(tmp_path / "x.npz", ["x"])


def test_a_member_longer_than_it_says_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", packed(np.zeros(100_000)))
    small = len(packed(np.zeros(10)))
    content = path.read_bytes().replace(
        len(packed(np.zeros(100_000))).to_bytes(4, "little"), small.to_bytes(4, "little")
    )
    path.write_bytes(content)
    with pytest.raises(DataError, match="array 'x'"):
        read_npz(path, ["x"])


@pytest.mark.parametrize(
    ("packed_bytes", "unpacked", "allowed"),
    [
        (1, 64 * 2**20, True),
        (1, 64 * 2**20 + 1, False),
        (3 * 2**20, 300 * 2**20, True),
        (3 * 2**20, 300 * 2**20 + 1, False),
    ],
)
def test_size_and_ratio_decide_what_is_refused(packed_bytes, unpacked, allowed):
    if allowed:
        check_unpacked(packed_bytes, unpacked, where="x")
    else:
        with pytest.raises(DataError, match="refused"):
            check_unpacked(packed_bytes, unpacked, where="x")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"gone\.npy: cannot be read"):
        read_npy(tmp_path / "gone.npy")


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_unpack_without_a_bound_are_refused(tmp_path, packing):
    """A member may say that it is small: these are unpacked whole before its size is looked at."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("x.npy", packed(np.zeros(40 << 20, np.uint8)))
    true, claimed = (
        len(packed(np.zeros(size, np.uint8))).to_bytes(4, "little") for size in (40 << 20, 10)
    )
    path.write_bytes(path.read_bytes().replace(true, claimed))
    tracemalloc.start()
    with pytest.raises(DataError, match="array 'x': is compressed in a way"):
        read_npz(path, ["x"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_changed_bytes_never_escape_as_another_error(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, größe=np.arange(9), y=np.arange(3) % 2)
    good = path.read_bytes()
    refusals = []
    for place in range(len(good)):
        path.write_bytes(good[:place] + b"\xff" + good[place + 1 :])
        try:
            read_npz(path, ["größe", "y"])
        except DataError as error:
            refusals.append(str(error))
    assert len(refusals) > len(good) // 2
    assert not any("\n" in refusal for refusal in refusals)
