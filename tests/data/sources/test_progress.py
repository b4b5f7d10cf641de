import builtins
import importlib.util
from typing import Any

import pytest

from imae.data.sources.download import byte_progress


def test_takes_counts_and_prints_nothing_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with byte_progress("file", done=3, total=10) as report:
        report(7)
        report(10)
    assert capsys.readouterr() == ("", "")


def test_works_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    real_import = builtins.__import__

    def refuse(name: str, *arguments: Any, **keywords: Any) -> Any:
        assert not name.startswith("rich")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with byte_progress("file", done=0, total=None) as report:
        report(7)


def test_unknown_total() -> None:
    with byte_progress("file", done=0, total=None) as report:
        report(7)
