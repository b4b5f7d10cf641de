"""What is known of a named data set: the record that builder, listing, fetch and tests read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imae.data.sources.origin import Origin
from imae.data.split import Data


@dataclass(frozen=True)
class NamedSet:
    """One data set that can be loaded by name.

    Args:
        name: Name on the command line.
        summary: One line for listings.
        reference: Author, title, venue and year.
        licence: What its authors allow, in a few words.
        rows: Number of rows of each part, training first.
        num_classes: Number of classes.
        build: Makes the data; takes the keywords in ``defaults``.
        locate: Where the set lies below a root, or None.
        verify: Digests of what lies there; raises if it is not the published set.
        defaults: Keywords of ``build`` with their usual values.
        origins: Where it can be fetched from, in the order to try; none means by hand only.
        by_hand: What to do where there is no origin.
        needs: Names of sets to fetch first.
        has_hashes: Whether hashes are published; if not, ``verify`` only finds missing files.
    """

    name: str
    summary: str
    reference: str
    licence: str
    rows: tuple[int, ...]
    num_classes: int
    build: Callable[..., Data]
    locate: Callable[[Path], Path | None]
    verify: Callable[[Path], dict[str, str]]
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"root": None})
    origins: tuple[Origin, ...] = ()
    by_hand: str = ""
    needs: tuple[str, ...] = ()
    has_hashes: bool = True
