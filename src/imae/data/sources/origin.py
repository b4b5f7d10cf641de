"""What a data set can be fetched from."""

from abc import ABC, abstractmethod
from pathlib import Path


class Origin(ABC):
    """One place that the files of a set can be had from."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name for listings and messages."""

    @abstractmethod
    def fetch(self, folder: Path) -> tuple[Path, ...]:
        """Puts the files into ``folder``, each whole or not at all, and returns their paths.

        Raises:
            DataError: If they cannot be had, or are not the published ones.
            OSError: If the network or the disk fails.
        """
