"""The file that a command reads is not the one it writes."""

import os
from pathlib import Path

from imae.data.sources.catalog import SOURCES
from imae.errors import ArgumentError


def refuse_overwriting(data: str, out: Path) -> None:
    """Raises if the output would replace the data.

    Raises:
        ArgumentError: If both are one file.
    """
    if (
        data not in SOURCES
        and os.path.exists(data)
        and out.exists()
        and os.path.samefile(data, out)
    ):
        raise ArgumentError(f"--out {out}: is the data itself; name another file")
