import numpy as np
import pytest

from imae.errors import DataError
from imae.records.files import check_lengths, parse_object, read_arrays


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1]", b'{"x": NaN}', b"\xff\xfe", b"[" * 100_000, b"\x00" * 20, b"3"],
)
def test_what_is_not_an_object_is_one_line(text):
    with pytest.raises(DataError, match=r"^a\.json: ") as caught:
        parse_object(text, "a.json")
    assert "\n" not in str(caught.value)


def test_arrays_of_the_kinds_asked_for(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), y=np.array(["a"]), other=np.zeros(2))
    found = read_arrays(path, {"x": "iu", "y": "U", "z": "f"}, optional="z")
    assert {name: values.tolist() for name, values in found.items()} == {"x": [0, 1, 2], "y": ["a"]}
    with pytest.raises(DataError, match=r"an array is missing .*z"):
        read_arrays(path, {"x": "iu", "z": "f"})
    with pytest.raises(DataError, match="x must not be int64 of shape"):
        read_arrays(path, {"x": "f"})
    with pytest.raises(DataError, match=r"a\.npz: its arrays must have the same length"):
        check_lengths(path, found)
    check_lengths(path, {"x": found["x"], "again": found["x"]})


def test_a_missing_and_a_damaged_file(tmp_path):
    with pytest.raises(DataError, match=r"no\.npz: cannot be read \(No such file or directory\)"):
        read_arrays(tmp_path / "no.npz", {"x": "f"})
    np.save(tmp_path / "one.npy", np.zeros(2))
    np.savez(tmp_path / "objects.npz", x=np.array([object()]))
    (tmp_path / "text.npz").write_text("damaged")
    for name in ("one.npy", "objects.npz", "text.npz"):
        with pytest.raises(DataError, match=r"cannot be read \(it is damaged\)"):
            read_arrays(tmp_path / name, {"x": "f"})
