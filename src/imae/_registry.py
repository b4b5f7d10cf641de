"""Things by name: catalogs of frozen entries, and packages that import names when used."""

import ast
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from imae.errors import ArgumentError

Built = TypeVar("Built")


@dataclass(frozen=True)
class Imported:
    """A function or class that is imported when it is called, so that listing it costs nothing.

    Args:
        path: Where it is: ``package.module:name``.

    Examples:
        >>> Imported("math:sqrt")(9.0)
        3.0
    """

    path: str

    def find(self) -> Callable[..., Any]:
        """The function or class itself."""
        module, _, name = self.path.partition(":")
        found: Callable[..., Any] = operator.attrgetter(name)(importlib.import_module(module))
        return found

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.find()(*arguments, **options)


@dataclass(frozen=True)
class Entry(Generic[Built]):
    """One thing that can be built by name.

    Args:
        name: Key on the command line, lower case.
        build: Makes the thing; takes the keywords in ``defaults``.
        summary: One line for listings.
        reference: Author, title, venue and year, or an empty string for our own.
        defaults: Keywords of ``build`` with the values used when none is given.
        title: Name in the headings of tables; the name by default.
    """

    name: str
    build: Callable[..., Built]
    summary: str
    reference: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)


def defaults_of(build: Callable[..., object]) -> dict[str, Any]:
    """The arguments of a function or class that have a default, with their defaults.

    Examples:
        >>> defaults_of(lambda x, size=3, *, shape="round": None)
        {'size': 3, 'shape': 'round'}
    """
    parameters = inspect.signature(build).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


class Catalog(Generic[Built]):
    """An ordered set of entries of one kind, each under its own name.

    Args:
        kind: What the entries are, for messages: ``"loss"``.
        entries: The entries, in listing order.

    Raises:
        ValueError: If two entries have the same name.

    Examples:
        >>> numbers = Catalog("number", (Entry("one", lambda: 1, "the unit"),))
        >>> numbers.build("one")
        1
    """

    def __init__(self, kind: str, entries: tuple[Entry[Built], ...]) -> None:
        self.kind = kind
        self._entries = {entry.name: entry for entry in entries}
        if len(self._entries) != len(entries):
            names = [entry.name for entry in entries]
            doubled = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"duplicate {kind}: {', '.join(doubled)}")

    def __iter__(self) -> Iterator[Entry[Built]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """Every name, in listing order."""
        return tuple(self._entries)

    def find(self, name: str) -> Entry[Built]:
        """The entry of this name.

        Raises:
            ArgumentError: If there is none; the message suggests the nearest names.
        """
        if name in self._entries:
            return self._entries[name]
        near = difflib.get_close_matches(name.lower(), self._entries, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(self.names())}"
        raise ArgumentError(f"unknown {self.kind} {name!r}; {hint}")

    def build(self, name: str, **arguments: Any) -> Built:
        """Builds the thing of this name from its defaults and ``arguments``.

        Raises:
            ArgumentError: If the name or an argument is unknown.
        """
        entry = self.find(name)
        for argument in arguments:
            if argument not in entry.defaults:
                takes = ", ".join(entry.defaults) or "no arguments"
                raise ArgumentError(f"{self.kind} {name!r} takes {takes}; got {argument!r}")
        return entry.build(**{**entry.defaults, **arguments})


def exports(
    package: str, objects: Mapping[str, object]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package that exports objects by name.

    A package re-exports both, and what a catalog lists is importable from the package without
    being named there a second time.

    Args:
        package: Name of the package.
        objects: What it exports besides its own names.

    Examples:
        >>> find, names = exports("imae", {"answer": 42})
        >>> find("answer"), "answer" in names()
        (42, True)
    """

    def find(name: str) -> Any:
        try:
            return objects[name]
        except KeyError:
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *objects})

    return find, names


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that re-exports names without importing them.

    The names are those that the package's ``__init__`` file imports under ``if TYPE_CHECKING:``,
    so type checkers and people read ordinary imports, and each name is written once:

        from typing import TYPE_CHECKING
        from imae._registry import lazy_exports

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
