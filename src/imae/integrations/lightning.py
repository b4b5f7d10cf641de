"""The audit in the Trainer of Lightning."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from imae.curves import IMAE
from imae.errors import ArgumentError, DataError, import_extra
from imae.integrations.dynamics import Recorder

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:  # the smaller of the two packages that Lightning is published as
    import_extra("pytorch_lightning", extra="lightning")
    from pytorch_lightning import Callback


class AuditCallback(Callback):  # type: ignore[misc]
    """Records margin and prediction of every training row, so that ``imae audit`` reads the run.

    ``training_step`` must return a dictionary with ``loss``, ``logits`` of shape (B, C),
    ``target`` of shape (B,) and ``row``, the positions of the rows in the training set, of shape
    (B,). The loss itself needs no callback: ``self.loss = imae.IMAELoss(T=8)`` in the module.

    Args:
        out: Folder to write; it must not exist or be empty.
        row_ids: Names of the rows, by default their positions.
        class_names: Names of the classes, by default numbers.
        method: Name of the loss in ``imae list methods``, for reports.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        row_ids: Sequence[object] | None = None,
        class_names: Sequence[str] | None = None,
        method: str = IMAE.name,
    ) -> None:
        self._options = {"row_ids": row_ids, "class_names": class_names, "method": method}
        self._out = out
        self.recorder: Recorder | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Creates the recorder for the number of training rows.

        Raises:
            ArgumentError: If the training set has no length, or the folder is not empty.
        """
        dataset: Any = getattr(trainer.train_dataloader, "dataset", None)
        if not hasattr(dataset, "__len__"):
            raise ArgumentError("the audit needs a training set with a length")
        options: Any = self._options
        self.recorder = Recorder(self._out, len(dataset), **options)

    def on_train_batch_end(
        self,
        trainer: Any,  # noqa: ARG002
        pl_module: Any,  # noqa: ARG002
        outputs: Any,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Records a batch, unless ``training_step`` returned None to skip it.

        Raises:
            DataError: If ``training_step`` does not return what is needed.
        """
        if not outputs:
            return
        wanted = ("row", "logits", "target")
        if not isinstance(outputs, Mapping) or any(name not in outputs for name in wanted):
            raise DataError("training_step must return a dictionary with loss, logits, target, row")
        assert self.recorder is not None
        self.recorder.update(*(outputs[name] for name in wanted))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Writes the dynamics of the epoch."""
        assert self.recorder is not None
        self.recorder.end_epoch()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Marks the training in the folder as finished."""
        assert self.recorder is not None
        self.recorder.finish()
