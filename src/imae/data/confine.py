"""File names that may not leave their folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from imae.errors import DataError


def confined_names(root: Path, names: Sequence[str], *, source: str) -> tuple[str, ...]:
    """Path of every file below the root, with forward slashes and all links followed.

    Args:
        root: Folder that no file may lie outside of.
        names: Files, relative to the root; an absolute name is fine if it lies inside.
        source: File that names them, for messages.

    Raises:
        DataError: If a name is blank, holds a NUL, or leads outside the root, be it by ``..``, by
            being absolute or through a link.
    """
    top = os.path.realpath(root)
    prefix = top if top.endswith(os.sep) else top + os.sep
    folders: dict[str, str] = {}  # a link in a folder's path is followed once for all its files
    inside = []
    for row, name in enumerate(names):
        if not name.strip() or "\0" in name:
            raise DataError(f"{source}: row {row} (counted from 0) has no usable path: {name!r}")
        folder, last = os.path.split(os.path.join(top, name))
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        path = os.path.join(folders[folder], last)
        if last in ("", ".", "..") or os.path.islink(path):
            path = os.path.realpath(path)
        if not path.startswith(prefix):
            raise DataError(
                f"{source}: row {row} (counted from 0) points outside {root}: {name!r}; give root "
                f"a folder that holds all files"
            )
        inside.append(path[len(prefix) :].replace(os.sep, "/"))
    return tuple(inside)
