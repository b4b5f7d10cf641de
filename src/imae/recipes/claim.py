"""What the runs of a folder share, so that others are not mixed in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imae._files import whole_file
from imae.errors import ArgumentError


def claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Writes down what a folder is for; a folder that is for something else is refused.

    Args:
        path: The file; its folder is made if it is not there.
        content: What the runs share, as plain values.
        holds: What the folder holds if it holds something else, for the message.

    Raises:
        ArgumentError: If the file says something else or is damaged, or the folder is none.
    """
    check_claim(path, content, holds=holds)
    with whole_file(path) as file:
        file.write(_text(content))


def check_claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Refuses a folder that is for something else, and writes nothing; see ``claim``.

    Raises:
        ArgumentError: If the file says something else or is damaged, or the folder is none.
    """
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, and --out names a folder")
    if path.exists() and path.read_bytes() != _text(content):
        if not _is_json(path.read_bytes()):
            raise ArgumentError(
                f"{path}: is damaged; delete it, and the same command again goes on"
            )
        raise ArgumentError(f"{path.parent}: holds {holds}; choose another --out")


def _text(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
