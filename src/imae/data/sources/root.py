"""Where data sets lie on this machine."""

import os
from pathlib import Path


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the data sets.

    Args:
        root: Folder given by the user, or None for ``$IMAE_DATA``, and ``~/.cache/imae`` where
            that is not set.

    Examples:
        >>> data_root("photos").name
        'photos'
    """
    if root is not None:
        return Path(root).expanduser()
    given = os.environ.get("IMAE_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "imae"


def places(name: str, root: Path) -> tuple[Path, ...]:
    """Folders in which the files of a set may lie: one of its own in ``root``, or ``root``."""
    return (root / name, root)
