"""Pickles: the ones that data sets use are read, the ones that do anything are not."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imae.data.sources.archive import unpickle
from imae.errors import DataError


def test_python_2_pickle(writers: Any) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 6)
    data = writers.python2_pickle({"batch_label": "one", "labels": [3, 200], "data": pixels})
    value = unpickle(data, source="batch")
    assert value[b"batch_label"] == b"one"
    assert value[b"labels"] == [3, 200]
    np.testing.assert_array_equal(value[b"data"], pixels)
    assert value[b"data"].dtype == np.uint8


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_python_3_pickle_of_arrays(protocol: int, dtype: type) -> None:
    labels = np.array([3, 1, 2], dtype)
    value = unpickle(pickle.dumps({"worse_label": labels}, protocol), source="labels")
    np.testing.assert_array_equal(value["worse_label"], labels)
    assert value["worse_label"].dtype == dtype


def test_several_pickles_in_a_row() -> None:
    data = pickle.dumps(1, 2) + pickle.dumps([2], 2) + b"rest"
    assert unpickle(data, source="f") == 1
    assert unpickle(data, source="f", skip=1) == [2]


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def text(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls ``module.name(argument)``, in the oldest instructions."""
    return f"c{module}\n{name}\n(V{argument}\ntR.".encode()


def gadgets(marker: str) -> dict[str, bytes]:
    """Pickles that would write ``marker``, or do other harm, if they were loaded."""
    write = f"open({marker!r}, 'w').close()"
    touch = f"touch {marker}"
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n"
    return {
        "os.system": pickle.dumps(Call(os.system, touch), 2),
        "os.system, protocol 4": pickle.dumps(Call(os.system, touch), 4),
        "posix.system, text": text("posix", "system", touch),
        "builtins.exec": pickle.dumps(Call(exec, write), 2),
        "builtins.eval": text("builtins", "eval", write),
        "python 2 names": text("__builtin__", "eval", write),
        "subprocess": text("subprocess", "getoutput", touch),
        "open": pickle.dumps(Call(open, marker, "w"), 2),
        "Path.touch": b"cpathlib\nPath.touch\n(V" + marker.encode() + b"\ntR.",
        "dotted numpy": b"\x80\x04\x8c\x05numpy\x8c\x09os.system\x93\x8c"
        + bytes([len(touch)])
        + touch.encode()
        + b"\x85R.",
        "numpy.load": text("numpy", "load", marker),
        "numpy scalar": pickle.dumps(np.float64(1), 2),
        "getattr": pickle.dumps(Call(getattr, "", "join"), 2),
        "inside a good dictionary": pickle.dumps(
            {"labels": [1], "data": Call(os.system, touch)}, 2
        ),
        "after a stop": pickle.dumps(Call(os.system, touch), 2)[:-1] + b"0N.",
        "INST": b"(V" + touch.encode() + b"\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nV" + touch.encode() + b"\no.",
        "NEWOBJ": b"\x80\x02cbuiltins\nlist\n)\x81.",
        "persistent id": b"Pstorage\n.",
        "extension code": b"\x80\x02\x82\x01.",
        "out-of-band buffer": b"\x80\x05\x97.",
        "another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xU\x03hex\x86R.",
        "change of a stand-in": reconstruct + b"\x80\x02}U\x01aK\x01sb.",
        "change of a stand-in by slots": b"\x80\x02" + reconstruct + b"N}U\x05_makeK\x01s\x86b.",
        "call of ndarray": b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",
        "array of objects": pickle.dumps(np.array([None, None], object), 2),
        "array of floats": pickle.dumps(np.zeros(2), 2),
        "call of a value": b"\x80\x02K\x01)R.",
        "huge memo": b"\x80\x02Nr\xff\xff\xff\xff.",
        "deep tuple key": b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.",
        "huge string": b"\x80\x02T\xff\xff\xff\x7f.",
        "huge frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
        "unhashable key": b"\x80\x02}]Ns.",
        "empty": b"",
        "text": b"not a pickle",
        "cut off": pickle.dumps({"labels": [1, 2, 3]}, 2)[:-4],
        "no stop": b"\x80\x02}",
        "empty stack": b"\x80\x02R.",
    }


def big_array(shape: tuple[int, ...], data: bytes) -> bytes:
    """An array whose shape and bytes do not fit."""
    sizes = b"".join(b"\x8a\x08" + struct.pack("<q", size) for size in shape)
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNK\x00K\x00K\x00tb"
    content = b"U" + bytes([len(data)]) + data
    start = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return start + b"(K\x01(" + sizes + b"t" + kind + b"\x89" + content + b"tb."


@pytest.mark.parametrize("name", gadgets(""))
def test_gadget_is_refused_and_does_not_run(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(DataError, match=r"^batch: refused, not the plain pickle") as error:
        unpickle(gadgets(str(marker))[name], source="batch")
    assert "\n" not in str(error.value)
    assert not marker.exists()


def test_the_gadgets_would_run(tmp_path: Path) -> None:
    """The proof that the test above can fail: an open unpickler runs what it must refuse."""
    marker = tmp_path / "ran"
    pickle.loads(gadgets(str(marker))["builtins.exec"])
    assert marker.exists()


def test_a_stand_in_is_not_changed_by_a_refused_pickle() -> None:
    for name in ("change of a stand-in", "change of a stand-in by slots"):
        with pytest.raises(DataError):
            unpickle(gadgets("")[name], source="f")
    labels = np.array([1, 2], np.uint8)
    value = unpickle(pickle.dumps({"a": labels}, 2), source="f")
    np.testing.assert_array_equal(value["a"], labels)


def test_shape_and_bytes_must_fit() -> None:
    fit = unpickle(big_array((2, 2), b"abcd"), source="f")
    np.testing.assert_array_equal(fit, [[97, 98], [99, 100]])
    for shape in ((2, 3), (1 << 40,), (-2, -2)):
        with pytest.raises(DataError, match=r"an array of shape .* with 4 bytes"):
            unpickle(big_array(shape, b"abcd"), source="f")


@pytest.mark.parametrize("dtype", [">i8", ">i4"])
def test_big_endian_arrays_are_refused(dtype: str) -> None:
    with pytest.raises(DataError, match="byte order '>'"):
        unpickle(pickle.dumps({"a": np.array([1, 2], dtype)}, 2), source="f")


def test_fortran_arrays_are_refused() -> None:
    array = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    with pytest.raises(DataError, match="unknown layout"):
        unpickle(pickle.dumps({"a": array}, 2), source="f")


def test_memo_numbers_of_real_pickles_pass() -> None:
    values = [f"image_{number}.png" for number in range(1_000)]  # more memo numbers than a byte has
    assert unpickle(pickle.dumps({"filenames": values}, 2), source="f") == {"filenames": values}


def test_one_text_cannot_be_turned_into_many_bytes() -> None:
    """The same call again and again costs three bytes of pickle and a copy of the text."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20)
    call = b"c_codecs\nencode\nq\x00" + text + b"X\x06\x00\x00\x00latin1\x86q\x01R"
    once = b"\x80\x02]" + call + b"a."
    assert unpickle(once, source="f") == [b"a" * (1 << 20)]
    tracemalloc.start()
    with pytest.raises(DataError, match="more bytes than it holds"):
        unpickle(once[:-1] + b"h\x00h\x01Ra" * 100 + b".", source="f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
