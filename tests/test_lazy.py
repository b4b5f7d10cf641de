"""Packages that import what they export when it is first used."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from imae._registry import _exported, lazy_exports

PACKAGES = ("imae.data", "imae.data.sources", "imae.models")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_can_be_had(package):
    module = importlib.import_module(package)
    get, names = lazy_exports(package)
    exported = [name for name in names() if not name.startswith("_") and name != "TYPE_CHECKING"]
    assert len(exported) > 5
    for name in exported:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        get("nothing")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_exported_name_is_that_of_a_module(package):
    """Importing the module would hide what is exported."""
    folder = Path(importlib.import_module(package).__path__[0])
    for name, origin in _exported(package).items():
        assert origin == package or not (folder / f"{name}.py").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "from imae.models import MODELS as catalog",
        "from imae.noise import KINDS as catalog",
        "from imae.data.sources import SOURCES as catalog",
    ],
)
def test_catalogs_are_listed_without_torch(statement):
    # The package itself is replaced by an empty one, for its own exports are not the matter here.
    program = (
        "import sys, types, importlib.util\n"
        "path = importlib.util.find_spec('imae').submodule_search_locations\n"
        "package = types.ModuleType('imae'); package.__path__ = path\n"
        "sys.modules['imae'] = package; sys.modules['torch'] = None\n"
        f"{statement}\n"
        "print(*(entry.name for entry in catalog if entry.summary))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5
