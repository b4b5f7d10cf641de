"""Packages whose names are imported when they are first used."""

import ast
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that re-exports names without importing them.

    The names are those that the package's ``__init__`` file imports under ``if TYPE_CHECKING:``,
    so type checkers and people read ordinary imports, and each name is written once:

        from typing import TYPE_CHECKING
        from imae._lazy import lazy_exports

        if TYPE_CHECKING:
            from imae.models.network import Network as Network
        else:
            __getattr__, __dir__ = lazy_exports(__name__)

    The hook is hidden from type checkers, to which it would make any name an attribute. No
    exported name may be that of a module in the package: importing the module would hide it.

    Args:
        package: ``__name__`` of the package.
    """
    modules = _exported(package)
    derived = modules.pop("__getattr__", None)  # a module that makes further names itself

    def get(name: str) -> Any:
        if name not in modules:
            with contextlib.suppress(AttributeError):
                if derived is not None and not name.startswith("_"):
                    return importlib.import_module(derived).__getattr__(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin = modules[name]
        if origin == package:  # "from imae import losses": a module of the package
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(origin), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})


def _exported(package: str) -> dict[str, str]:
    """For each name under ``if TYPE_CHECKING:`` the module that it is imported from."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.loader is not None
    source = spec.loader.get_source(package)  # type: ignore[attr-defined]
    return {
        alias.asname or alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
