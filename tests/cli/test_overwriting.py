import os

import pytest

from imae.cli.app import main, refuse_overwriting
from imae.errors import ArgumentError


def test_one_file_under_two_names_is_one_file(tmp_path):
    data, link = tmp_path / "data.csv", tmp_path / "link.csv"
    data.write_text("label\n")
    os.link(data, link)
    for out in (data, link):
        with pytest.raises(ArgumentError, match="is the data itself"):
            refuse_overwriting(str(data), out)
    refuse_overwriting(str(data), tmp_path / "new.csv")
    refuse_overwriting("nowhere.csv", data)


def test_a_known_name_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").touch()
    refuse_overwriting("digits", tmp_path / "digits")


@pytest.mark.parametrize("command", [["compare", "digits"], ["reproduce", "weights"]])
def test_files_of_the_user_in_the_folder_of_a_grid_are_kept(command, tmp_path, capsys):
    (tmp_path / "table.csv").write_text("mine")
    assert main([*command, "--out", str(tmp_path)]) == 2
    assert "would overwrite it; choose another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "mine"
