import sys

import pytest

from imae.errors import MissingExtraError, import_extra


def test_gives_the_module():
    assert import_extra("json.decoder", extra="data").JSONDecoder


def test_a_missing_one_names_the_install_command():
    with pytest.raises(MissingExtraError, match=r"pip install 'imae\[plot\]'"):
        import_extra("no_such_package.part", extra="plot")


def test_a_package_of_the_users_own_is_named_itself():
    with pytest.raises(MissingExtraError, match=r"pip install no_such_package$"):
        import_extra("no_such_package.part", extra=None)


def test_a_broken_one_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_package_inside")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_inside") as caught:
        import_extra("broken_package", extra="plot")
    assert not isinstance(caught.value, MissingExtraError)
    assert "broken_package" not in sys.modules
