"""What is common to all writing into a run folder."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from imae.errors import ImaeError


@contextlib.contextmanager
def explained_writing(path: Path, run: Path) -> Iterator[None]:
    """Turns a failure to write into one line that says how to go on.

    Args:
        path: What is being written.
        run: The run folder it belongs to.

    Raises:
        ImaeError: If the disk is full, the folder is not writable, and so on.
    """
    try:
        yield
    except OSError as error:
        raise ImaeError(
            f"{path}: cannot be written ({error.strerror or error}); mend that, then go on with: "
            f"imae train --resume {run}"
        ) from error


def plain(value: Any) -> Any:
    """The value with numbers that JSON does not know replaced by None.

    Examples:
        >>> plain({"loss": math.inf, "steps": (1, 2)})
        {'loss': None, 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
