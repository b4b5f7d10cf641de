"""A run that has been trained, read from its folder."""

import copy
import os
from pathlib import Path
from typing import Any

from torch import nn

from imae.errors import DataError, check_choice
from imae.methods.catalog import METHODS
from imae.methods.method import Method
from imae.models import Network, build, input_options
from imae.models.network import CustomNetwork
from imae.records import RunFolder
from imae.train.checkpoint import load_tensors
from imae.train.config import FROM_PYTHON, Config
from imae.train.settings import build_config


class Run:
    """A run on disk, with its network.

    Args:
        path: The run folder.
        model: Name of the network, if it is a function of your own: a folder by itself, which may
            come from anybody, imports nothing. For a network that was given as a module, a module
            like it.

    Raises:
        DataError: If there is no run, or it has another network.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, model: str | nn.Module | None = None
    ) -> None:
        self.folder = RunFolder(path)
        self.config: Config = build_config(self.folder.config())
        self._trusted_model = model
        if not isinstance(model, nn.Module) and model not in (None, self.config.model.name):
            raise DataError(
                f"{self.folder.path}: its network is {self.config.model.name}, not {model}"
            )

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

    def load_model(self, which: str | None = None) -> Network:
        """The trained network, in evaluation mode; its outputs are those that the loss saw.

        Args:
            which: "best" on the held-out labels, or "final"; by default the best if rows were held
                out, or the run was stopped early.

        Raises:
            ArgumentError: If ``which`` is neither.
            DataError: If the weights are not there yet, or damaged, or the network is code that
                was not named.
        """
        if which is not None:
            check_choice("which", which, ("final", "best"))
        self.refuse_code()
        weights = self.path / "weights"
        which = which or ("best" if (weights / "best.pt").exists() else "final")
        path = weights / f"{which}.pt"
        content = load_tensors(path)
        model = self.config.model
        if model.name is None:
            raise DataError(f"{self.folder.path}: its config.json names no network")
        try:
            if isinstance(self._trusted_model, nn.Module):
                network = as_network(self._trusted_model, content["num_classes"])
            else:
                options = {**input_options(model.name, content["input_shape"]), **model.arguments}
                network = build(model.name, num_classes=content["num_classes"], **options)
            network.load_state_dict(content["network"])
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"{path}: does not fit the network {model.name} ({reason})") from None
        method = self.config.method
        add_output(network, METHODS.build(method.name, **method.arguments))
        return network.eval()

    def refuse_code(self) -> None:
        """Raises if building the network would import code that the caller did not name.

        Raises:
            DataError: If so.
        """
        name = self.config.model.name or ""
        if isinstance(self._trusted_model, nn.Module):
            return
        if name.startswith(FROM_PYTHON):
            raise DataError(
                f"{self.path}: its network was given in Python; give one like it again: "
                f"imae.train.Run({str(self.path)!r}, model=...)"
            )
        if ":" in name and name != self._trusted_model:
            raise DataError(
                f"{self.path}: its network is code, {name}, which a run folder by itself does not "
                f"import; if you trust it, name it too: --model {name}"
            )

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def as_network(module: nn.Module, num_classes: int) -> Network:
    """A copy of a module that gives logits, as a network."""
    module = copy.deepcopy(module)
    return module if isinstance(module, Network) else CustomNetwork(module, num_classes=num_classes)


def add_output(network: nn.Module, method: Method) -> None:
    """Makes the method's last step, such as a cap on the confidence, a part of the network.

    From then on a call of the network gives what the loss sees. The step has no weights, so the
    network's files are those of the network without it.
    """
    step = method.output()
    if step is not None:
        network.register_forward_hook(lambda _module, _inputs, logits: step(logits))
