"""Fetching and verifying named data sets."""

import contextlib
import os
from pathlib import Path

from imae.data.sources.archive import data_root
from imae.data.sources.catalog import NamedSet, named_set
from imae.errors import DataError


def fetch(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Puts a named set below ``root``, unless it is there, and returns where it lies.

    Origins are tried in order until one gives the published set. Files that are not the
    published ones are removed. If all fail, what came of a download that broke off stays, and
    the next call resumes it.

    Args:
        name: Name of the set.
        root: Folder of the data sets, or None for the default one.

    Raises:
        ArgumentError: If no set has this name.
        DataError: If no origin has the set, with the reason of each; if the set can only be had
            by hand; or if what is there already is not the published set.

    Examples:
        >>> fetch("digits").name
        'sklearn'
    """
    item = named_set(name)
    folder = data_root(root)
    for needed in item.needs:
        fetch(needed, folder)
    return fetch_set(item, folder)


def verify(name: str, root: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """SHA-256 of each decoded array of a named set; each is the published one, if there is one.

    Args:
        name: Name of the set.
        root: Folder of the data sets, or None for the default one.

    Raises:
        ArgumentError: If no set has this name.
        DataError: If the set is not there, is damaged, or is not the published one.

    Examples:
        >>> sorted(verify("digits"))
        ['images', 'labels']
    """
    return named_set(name).verify(data_root(root))


def fetch_set(item: NamedSet, root: Path) -> Path:
    """Puts one set below ``root``, unless it is there, and returns where it lies.

    Raises:
        DataError: As ``fetch`` does.
    """
    found = item.locate(root)
    if found is not None:
        item.verify(root)
        return found
    if not item.origins:
        raise DataError(f"{item.name} cannot be fetched: {item.by_hand}")
    failures = []
    for origin in item.origins:
        paths: tuple[Path, ...] = ()
        try:
            paths = origin.fetch(root / item.name)
            item.verify(root)
        except (DataError, OSError) as error:
            for path in paths:
                path.unlink(missing_ok=True)
            reason = " ".join(str(error).split())
            failures.append(reason if origin.label in reason else f"{origin.label}: {reason}")
            continue
        for part in (root / item.name).glob("*.part"):  # of an origin that broke off
            part.unlink()
        place = item.locate(root)
        assert place is not None
        return place
    with contextlib.suppress(OSError):  # a part that can be resumed keeps it
        (root / item.name).rmdir()
    raise DataError(f"{item.name}: no source worked: {'; '.join(failures)}")
