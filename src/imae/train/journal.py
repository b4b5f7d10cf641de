"""What a run writes as it trains: evaluations, dynamics, checkpoints, progress."""

import math
import time
from typing import Any

import numpy as np

from imae.errors import DataError
from imae.records import EpochDynamics, RunFolder, RunLabels
from imae.records.measures import HELD_OUT, TEST
from imae.train.checkpoint import load_checkpoint, save_checkpoint, save_tensors
from imae.train.display import Display, Logger, build_loggers
from imae.train.dynamics import Dynamics
from imae.train.evaluate import evaluate, held_dynamics
from imae.train.machine import describe as describe_machine
from imae.train.rows import describe as describe_rows
from imae.train.state import State

_SECONDS_BETWEEN_PROGRESS = 5.0


class Journal:
    """The writing side of a run. All ranks call it, for measuring needs all; the first writes.

    Args:
        run: The run folder.
        display: What a person sees.
    """

    def __init__(self, run: RunFolder, display: Display) -> None:
        self.run = run
        self.display = display
        self._loggers: list[Logger] = []
        self._last_progress = 0.0

    def begin(self, state: State, *, is_resumed: bool) -> None:
        """Writes what is being run, or restores a run that was interrupted.

        Args:
            state: The run before its first step.
            is_resumed: Whether the folder holds a run to continue.

        Raises:
            DataError: If the data is no longer what the run was started on.
        """
        if is_resumed:
            _check_same_labels(self.run.labels(), _labels(state), self.run)
            described = describe_rows(state.prepared, state.config.data.features)
            _check_same_inputs(self.run.preparation(), described, self.run)
            content = load_checkpoint(self.run.checkpoints, self.display.say)
            if content is not None:
                state.restore(content)
            if state.is_first:
                epochs, begun = divmod(state.step, state.steps_per_epoch)
                if begun and state.step == state.total_steps:
                    epochs += 1  # the last epoch was cut short, and is written
                self.run.truncate(step=state.step, num_epochs=epochs)
        elif state.is_first:
            threads = state.config.machine.threads
            assert threads is not None
            self.run.write_env(describe_machine(state.fabric.device, threads))
            self.run.write_labels(_labels(state), _held_labels(state))
            self.run.write_preparation(describe_rows(state.prepared, state.config.data.features))
            # Last: a folder with a configuration is a run that can be resumed.
            self.run.write_config(state.config.model_dump(mode="json"))
        if state.is_first:
            if state.config.log:
                self._loggers = build_loggers(state.config.log, self.run, state.step)
            self._progress(state, "running")
        self.display.start(state.step, state.total_steps)

    def advanced(self, state: State) -> None:
        """Records that a step is done."""
        self.display.advance(state.step)
        if time.monotonic() - self._last_progress > _SECONDS_BETWEEN_PROGRESS:
            self._progress(state, "running")

    def growth(self, state: State) -> None:
        """Says once that the logits have grown very large."""
        line = state.watch.growth()
        if line is not None:
            self.display.say(line)
            self._progress(state, "running", line)

    def dynamics(self, state: State, epoch: int) -> EpochDynamics | None:
        """Writes what the epoch, from 0, has shown of every row, and clears it.

        Returns:
            What the network predicts of labels that are not trained on, if there are any.
        """
        whole = state.ranks.total(state.dynamics.state())
        held = held_dynamics(state)
        if state.is_first:
            self.run.write_dynamics(epoch + 1, Dynamics.record(whole), held)
        state.dynamics.clear()
        return held

    def evaluation(self, state: State, held: EpochDynamics | None) -> None:
        """Measures and writes a row of the history; keeps the weights if they are the best.

        Args:
            state: The run.
            held: What `dynamics` returned at this step, if it was called.
        """
        loss, weight = state.ranks.total(state.loss).tolist()
        state.loss.zero_()
        row: dict[str, Any] = {
            "step": state.step,
            "epoch": state.step / state.steps_per_epoch,
            "seconds": state.elapsed(),
            "learning_rate": state.optimizer.param_groups[0]["lr"],
            "train_loss": loss / weight if weight else None,
            **evaluate(state, held),
        }
        validation = row[HELD_OUT.key]
        if validation is not None and validation > state.best_validation:
            state.best_validation = validation
            self._save_weights("best", state)
        if not state.is_first:
            return
        self.run.append_history(row)
        for logger in self._loggers:
            logger.log(row)
        self.display.measured(row)

    def checkpoint(self, state: State) -> None:
        """Saves the whole state."""
        content = state.capture()
        if state.is_first:
            keep = state.config.train.keep
            save_checkpoint(self.run.checkpoints, content, step=state.step, keep=keep)

    def stopped(self, state: State) -> str:
        """Records that a signal ended the run; the line says how to continue."""
        command = state.config.resume_command(self.run.path)
        line = f"stopped after step {state.step}; continue with: {command}"
        self._progress(state, "stopped", line)
        return line

    def failed(self, state: State, message: str) -> None:
        """Records why the run ended."""
        self._progress(state, "failed", message)

    def finish(self, state: State) -> None:
        """Writes the weights and the result."""
        self._save_weights("final", state)
        if not state.is_first:
            return
        result = {
            **summary(_of_last_stage(self.run.history(), state)),
            "steps": state.step,
            "seconds": state.elapsed(),
            "seconds_per_step": state.step_seconds / state.step,
            "status": "finished",
        }
        self.run.write_result(result)
        self._progress(state, "finished")

    def close(self) -> None:
        """Ends the logs and the display."""
        for logger in self._loggers:
            logger.close()
        self.display.close()

    def _save_weights(self, which: str, state: State) -> None:
        weights = {
            "step": state.step,
            "num_classes": state.prepared.train.num_classes,
            "input_shape": list(state.prepared.train.inputs.shape),
            "network": state.network.state_dict(),
        }
        weights = state.whole(weights)
        if state.is_first:
            save_tensors(self.run.path / "weights" / f"{which}.pt", weights)

    def _progress(self, state: State, status: str, message: str = "") -> None:
        self._last_progress = time.monotonic()
        if state.is_first:
            self.run.write_progress(
                step=state.step,
                total_steps=state.total_steps,
                seconds=state.elapsed(),
                status=status,
                message=message,
            )


def summary(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The best and the final row of a history, apart.

    ``best`` has the highest accuracy on the held-out labels, as a user without clean data would
    choose; ``best_test`` has the highest test accuracy, the paper's "Best". Of equal ones the
    first counts; without a held-out part ``best`` is ``best_test``, and without both it is final.

    Examples:
        >>> rows = [{"step": 1, "test_accuracy": 0.9, "validation_accuracy": 0.4},
        ...         {"step": 2, "test_accuracy": 0.8, "validation_accuracy": 0.5}]
        >>> {name: row["step"] for name, row in summary(rows).items()}
        {'best': 2, 'best_test': 1, 'final': 2}
    """
    final = history[-1]
    best_test = _highest(history, TEST.key)
    best = _highest(history, HELD_OUT.key) or best_test or final
    return {"best": best, "best_test": best_test, "final": final}


def _of_last_stage(history: list[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """The rows after a restart: before it another network was trained on another loss."""
    if state.restart is None:
        return history
    border = state.restart.epoch * state.steps_per_epoch
    return [row for row in history if row["step"] > border] or history


def _highest(history: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    known = [row for row in history if row[name] is not None]
    return max(known, key=lambda row: float(row[name]), default=None)


def _labels(state: State) -> RunLabels:
    train = state.prepared.train
    return RunLabels(
        train.row_ids,
        train.labels,
        np.array(train.class_names),
        train.clean_labels,
        state.prepared.is_planted,
    )


def _held_labels(state: State) -> RunLabels | None:
    parts = state.prepared.unseen
    if not parts:
        return None
    clean = [split.clean_labels for split in parts if split.clean_labels is not None]
    return RunLabels(
        np.concatenate([split.row_ids for split in parts]),
        np.concatenate([split.labels for split in parts]),
        np.array(parts[0].class_names),
        np.concatenate(clean) if len(clean) == len(parts) else None,
    )


def _check_same_labels(before: RunLabels, now: RunLabels, run: RunFolder) -> None:
    if len(before.given) == len(now.given):
        changed = (before.row_ids != now.row_ids) | (before.given != now.given)
        if not changed.any():
            return
        row = f"row {str(now.row_ids[int(changed.argmax())])!r} differs"
    else:
        row = f"{len(now.given)} rows instead of {len(before.given)}"
    raise DataError(f"{run.path}: the data is not what this run was started on: {row}")


def _check_same_inputs(before: dict[str, Any], now: dict[str, Any], run: RunFolder) -> None:
    """Compares the content of every part of the data, and how rows are prepared."""
    hashes = before.get("content", {})  # runs of earlier versions have none
    for part in hashes.keys() | (now["content"].keys() if hashes else set()):
        if hashes.get(part) != now["content"].get(part):
            raise DataError(
                f"{run.path}: the data is not what this run was started on: the {part} part differs"
            )
    for key in ("class_names", "input_shape", "preparation"):
        if not _is_close(before.get(key), now[key]):
            raise DataError(
                f"{run.path}: the data is not what this run was started on: its {key} differs"
            )


def _is_close(before: Any, now: Any) -> bool:
    """Whether nested values are equal; numbers may differ in the digits that machines differ in."""
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_is_close(before[key], now[key]) for key in now)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_is_close, before, now))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)
    return bool(before == now)
