"""One run of a grid, and how another process does it."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imae.errors import ImaeError
from imae.records import RunFolder
from imae.train import Config, Run, Stopped, build_config, resume, train


@dataclass(frozen=True)
class Job:
    """One run that is to be done.

    Args:
        name: Name of its folder.
        config: What is trained.
    """

    name: str
    config: Config

    def content(self) -> dict[str, Any]:
        """The settings as plain values, which another process can read."""
        return self.config.model_dump(mode="json")


def train_or_resume(config: Config, *, show: bool = False) -> Run:
    """The finished run of a configuration: trained, gone on with, or found as it is."""
    assert config.out is not None
    if RunFolder(config.out).exists():
        return resume(config.out, show=show, model=config.model.name)
    return train(config, show=show)


def attempt(config: Config, *, show: bool = False) -> str | None:
    """Does a run; what went wrong, in one line, or None.

    Raises:
        Stopped: If a signal ended it; it can be resumed.
    """
    try:
        train_or_resume(config, show=show)
    except Stopped:
        raise
    except ImaeError as error:
        return str(error)
    except Exception as error:  # such as no more memory: the other runs of a grid go on
        traceback.print_exc()
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def attempt_content(content: Mapping[str, Any]) -> str | None:
    """Does a run given as plain settings, as another process gets them; see ``attempt``."""
    return attempt(build_config(content))
