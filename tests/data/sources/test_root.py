from pathlib import Path

import pytest

from imae.data.sources.download import data_root, places


def test_a_given_folder_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IMAE_DATA", "elsewhere")
    assert data_root(tmp_path) == tmp_path
    assert data_root(str(tmp_path)) == tmp_path


def test_the_environment_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("IMAE_DATA", "~/sets")
    assert data_root() == Path("/home/somebody/sets")


def test_the_cache_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("IMAE_DATA", raising=False)
    assert data_root() == Path("/home/somebody/.cache/imae")
    monkeypatch.setenv("IMAE_DATA", "")
    assert data_root() == Path("/home/somebody/.cache/imae")


def test_places_are_the_own_folder_and_the_root() -> None:
    assert places("mars", Path("sets")) == (Path("sets/mars"), Path("sets"))
