import pytest

from imae.errors import ArgumentError
from imae.recipes.grid import claim


def test_a_folder_is_for_one_thing(tmp_path):
    path = tmp_path / "new" / "claim.json"
    claim(path, {"budget": "tiny"}, holds="another budget")
    claim(path, {"budget": "tiny"}, holds="another budget")
    with pytest.raises(ArgumentError, match="new: holds another budget; choose another --out"):
        claim(path, {"budget": "short"}, holds="another budget")
    assert "tiny" in path.read_text()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    for path in ("out/claim.json", "out/within/claim.json"):
        with pytest.raises(ArgumentError, match="out: is a file, and --out must be a folder"):
            claim(tmp_path / path, {}, holds="something else")


def test_a_damaged_file_is_not_written_over(tmp_path):
    path = tmp_path / "claim.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ArgumentError, match=r"claim\.json: is damaged; delete it"):
        claim(path, {}, holds="something else")
    assert path.read_bytes() == b"\xff\xfe"
