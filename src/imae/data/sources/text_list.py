"""Lists of image files as the big sets publish them: one name in a line."""

from collections.abc import Sequence
from pathlib import Path

from imae.errors import DataError


def read_names(path: Path) -> list[str]:
    """The lines of a list of files, without empty ones.

    Args:
        path: A text file with one relative path in a line.

    Raises:
        DataError: If the list is missing, empty or not text, or a name is absolute or leads out
            of its folder; the message names the line.
    """
    names = []
    for number, line in enumerate(read_lines(path), 1):
        if line:
            check_relative(line, f"{path}: line {number}")
            names.append(line)
    if not names:
        raise DataError(f"{path}: the list is empty")
    return names


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, without the white space around them.

    Raises:
        DataError: If the file is missing or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: there is no such list: see the layout in the data set page"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file (byte {error.start})") from error
    return [line.strip() for line in text.split("\n")]


def check_relative(name: str, source: str) -> None:
    """Raises unless a name stays inside the folder that it is relative to.

    Raises:
        DataError: If it is absolute or has a part ``..``.
    """
    is_absolute = name.startswith(("/", "\\")) or name[1:2] == ":"
    if is_absolute or "\0" in name or ".." in name.replace("\\", "/").split("/"):
        raise DataError(f"{source}: {name!r} leads out of the folder of the data set")


def check_files(root: Path, names: Sequence[str]) -> None:
    """Raises unless every named file is there.

    Raises:
        DataError: With the number of missing files and the first of them.
    """
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise DataError(
            f"{root}: {len(missing)} of {len(names)} images are missing, the first is {missing[0]}"
        )
