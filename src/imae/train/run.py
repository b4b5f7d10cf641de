"""A run that has been trained, read from its folder."""

import os
from pathlib import Path
from typing import Any

from imae._checks import check_choice
from imae.models import Network, build, input_options
from imae.records import RunFolder
from imae.train.checkpoint import load_tensors
from imae.train.config import Config
from imae.train.reading import build_config


class Run:
    """A run on disk, with its network.

    Args:
        path: The run folder.

    Raises:
        DataError: If there is no run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = RunFolder(path)
        self.config: Config = build_config(self.folder.config())

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation."""
        return self.folder.history()

    @property
    def result(self) -> dict[str, Any] | None:
        """Best and final measures, or None while the run has not ended."""
        return self.folder.result()

    def load_model(self, which: str = "final") -> Network:
        """The trained network, in evaluation mode.

        Args:
            which: "final", or "best" on the held-out labels.

        Raises:
            ArgumentError: If ``which`` is neither.
            DataError: If the weights are not there yet, or damaged.
        """
        check_choice("which", which, ("final", "best"))
        content = load_tensors(self.path / "weights" / f"{which}.pt")
        model = self.config.model
        assert model.name is not None
        options = {**input_options(model.name, content["input_shape"]), **model.arguments}
        network = build(model.name, num_classes=content["num_classes"], **options)
        network.load_state_dict(content["network"])
        return network.eval()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
