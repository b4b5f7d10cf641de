"""What a run writes during training: evaluations, dynamics, checkpoints, progress."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError
from imae.records import RunFolder, RunLabels
from imae.records.measures import HELD_OUT, TEST
from imae.train.display import Display, Logger, build_loggers
from imae.train.dynamics import Dynamics, changed_share, closing_hints, label_wave
from imae.train.learner import HeldOut, evaluate, predict_held_out
from imae.train.machine import describe as describe_machine
from imae.train.preparation import check_same_data
from imae.train.rows import describe as describe_rows
from imae.train.run import load_checkpoint, save_checkpoint, save_tensors
from imae.train.state import State

_SECONDS_BETWEEN_PROGRESS = 5.0
_SECONDS_BETWEEN_CHECKPOINTS = 10.0  # at the ends of epochs


class Journal:
    """Writes the run folder. All ranks call it, since all take part in measuring; only one writes.

    Args:
        run: The run folder.
        display: Shows the progress to people.
    """

    def __init__(self, run: RunFolder, display: Display) -> None:
        self.run = run
        self.display = display
        self._loggers: list[Logger] = []
        self._last_progress = 0.0
        self._last_checkpoint = time.monotonic()
        self._predicted: NDArray[np.int32] | None = None  # in the last epoch
        self._changes: list[float] = []  # for ``label_wave``

    def begin(self, state: State, *, is_resumed: bool) -> None:
        """Writes the settings of a new run, or restores a run that was interrupted.

        Args:
            state: The run before its first step.
            is_resumed: Whether the folder holds a run to continue.

        Raises:
            DataError: If the data has changed since the run was started, or a finished run has no
                checkpoint from which it can be lengthened.
        """
        if is_resumed:
            self._check_length(state)
            described = describe_rows(state.prepared, state.config.data.features)
            check_same_data(self.run, _labels(state), _held_labels(state), described)
            found = load_checkpoint(self.run.checkpoints, self.display.say, state.restore)
            if found is None and self.run.result() is not None:
                raise DataError(
                    f"{self.run.path}: has finished, and its checkpoints are missing or damaged, "
                    "so it cannot be lengthened; it is left as it is; train again with another "
                    "--out"
                )
            self._continue(state)
        elif state.is_first:
            threads = state.config.machine.threads
            assert threads is not None
            self.run.write_env(describe_machine(state.fabric.device, threads))
            self.run.write_labels(_labels(state), _held_labels(state))
            self.run.write_preparation(describe_rows(state.prepared, state.config.data.features))
            # Written last: a folder with a configuration is a run that can be resumed.
            self.run.write_config(state.config.model_dump(mode="json"))
        if state.is_first:
            if state.config.log:
                self._loggers = build_loggers(state.config.log, self.run, state.step)
            self._progress(state, "running")
        self.display.start(state.step, state.total_steps)

    def _is_longer(self, state: State) -> bool:
        stored, train = self.run.config()["train"], state.config.train
        return (stored["epochs"], stored["steps"]) != (train.epochs, train.steps)

    def _check_length(self, state: State) -> None:
        if state.method.has_stages and self._is_longer(state):
            raise ArgumentError(
                f"{self.run.path}: {state.config.method.name} trains in stages that are parts of "
                "the run, so it cannot be lengthened; train again with another --out"
            )

    def _continue(self, state: State) -> None:
        """Removes what was written after the checkpoint, and records a longer budget."""
        train, is_longer = state.config.train, self._is_longer(state)
        if is_longer and state.total_steps <= state.step:
            raise ArgumentError(
                f"{self.run.path}: has trained {state.step} steps already; give more than "
                f"{state.step / state.steps_per_epoch:g} epochs"
            )
        epochs, begun = divmod(state.step, state.steps_per_epoch)
        if train.early_stop is not None:
            for epoch in self.run.epochs()[:epochs]:
                self._note(self.run.dynamics(epoch).predicted)
            best, is_over = self._wave(state)
            if is_over and is_longer:
                raise ArgumentError(
                    f"{self.run.path}: was stopped early, as predictions changed least in epoch "
                    f"{best}, and so cannot be lengthened; train again without train.early_stop"
                )
            if is_over:
                state.total_steps = state.step
        is_cut_short = bool(begun) and epochs + 1 in self.run.epochs()
        if state.is_first and is_longer:
            if is_cut_short:  # its rows count for the epoch that now continues
                state.dynamics.restore(Dynamics.from_record(self.run.dynamics(epochs + 1)))
            budget = {"step": state.step, "total_steps": state.total_steps}
            env = self.run.env()
            self.run.write_env({**env, "lengthened": [*env.get("lengthened", []), budget]})
            self.run.write_config(state.config.model_dump(mode="json"))
        if state.is_first:
            is_complete = is_cut_short and state.step == state.total_steps
            self.run.truncate(step=state.step, num_epochs=epochs + is_complete)

    def advanced(self, state: State) -> None:
        """Records that a step is done."""
        self.display.advance(state.step)
        if time.monotonic() - self._last_progress > _SECONDS_BETWEEN_PROGRESS:
            self._progress(state, "running")

    def growth(self, state: State) -> None:
        """Warns once if the logits have grown very large."""
        if (line := state.watch.growth()) is not None:
            self.display.say(line)
            self._progress(state, "running", line)

    def dynamics(self, state: State, epoch: int) -> HeldOut:
        """Writes the dynamics of the epoch, counted from 0, and clears them.

        Returns:
            Predictions of the rows that are not trained on.
        """
        whole = state.ranks.total(state.dynamics.state())
        held = predict_held_out(state)
        record = Dynamics.record(whole)
        if state.step % state.steps_per_epoch == 0:
            self._note(record.predicted)
        else:  # an epoch that is cut short cannot be the best: its weights are not kept
            self._predicted = record.predicted
        if state.is_first:
            self.run.write_dynamics(epoch + 1, record, held.unseen, is_synced=False)
        state.dynamics.clear()
        return held

    def stops_early(self, state: State) -> bool:
        """Whether the run ends after this epoch; keeps the weights of the best one so far.

        If rows are held out, their labels decide which epoch is the best.
        """
        epoch, is_over = self._wave(state)
        if epoch == state.step // state.steps_per_epoch and state.prepared.validation is None:
            self._save_weights("best", state)
        if is_over:
            state.total_steps = state.step
            self.display.say(f"stopped early: predictions changed least in epoch {epoch}")
        return is_over

    def _note(self, predicted: NDArray[np.int32]) -> None:
        if self._predicted is not None:
            self._changes.append(changed_share(self._predicted, predicted))
        self._predicted = predicted

    def _wave(self, state: State) -> tuple[int | None, bool]:
        """See ``label_wave``; each stage of a run in two stages counts by itself."""
        skipped = 0
        if state.restart is not None and state.step > state.restart.epoch * state.steps_per_epoch:
            skipped = state.restart.epoch
        epoch, is_over = label_wave(self._changes[skipped:])
        return None if epoch is None else epoch + skipped, is_over

    def evaluation(self, state: State, held: HeldOut | None) -> None:
        """Measures and writes a row of the history; keeps the weights if they are the best.

        ``held`` is what `dynamics` returned at this step, if it was called.
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
            **state.method.shown(),
        }
        validation = row[HELD_OUT.key]
        if validation is not None and validation >= state.best_validation:
            state.best_validation = validation
            self._save_weights("best", state)
        if not state.is_first:
            return
        self.run.append_history(row, is_synced=False)
        for logger in self._loggers:
            logger.log(row)
        self.display.measured(row)

    def is_checkpoint_due(self, state: State) -> bool:
        """Whether enough time has passed to save the end of an epoch.

        Repeating those seconds of training gives the same bits and takes no longer than the first
        time, and saving after every epoch of a small table took longer than training on it.
        """
        is_alone = state.ranks.number == 1  # the clocks of several processes do not agree
        age = time.monotonic() - self._last_checkpoint
        return not is_alone or age > _SECONDS_BETWEEN_CHECKPOINTS

    def checkpoint(self, state: State) -> None:
        """Saves the whole state."""
        self._last_checkpoint = time.monotonic()
        content = state.capture()
        if state.is_first:
            self.run.sync()  # measurements up to here are not repeated when the run is resumed
            keep = state.config.train.keep
            save_checkpoint(self.run.checkpoints, content, step=state.step, keep=keep)

    def stopped(self, state: State) -> str:
        """Records that a signal ended the run; the line says how to continue."""
        command = state.config.resume_command(self.run.path)
        line = f"stopped after step {state.step}; continue with: {command}"
        self._progress(state, "stopped", line)
        return line

    def failed(self, state: State, message: str) -> None:
        """Records why the run ended, unless it had finished before."""
        if self.run.result() is None:
            self._progress(state, "failed", message)

    def finish(self, state: State) -> None:
        """Writes the weights and the result."""
        self._save_weights("final", state)
        is_early = state.config.train.early_stop is not None
        epoch = self._wave(state)[0] if is_early else None
        if is_early and epoch is None and state.prepared.validation is None:
            self._save_weights("best", state)  # too few epochs to find one: the last is the best
        if not state.is_first:
            return
        history = _of_last_stage(self.run.history(), state)
        result = {
            **summary(history, best_step=None if epoch is None else epoch * state.steps_per_epoch),
            "steps": state.step,
            "seconds": state.elapsed(),
            "seconds_per_step": state.step_seconds / state.step,
            "status": "finished",
        }
        self.run.write_result(result)
        self._progress(state, "finished")
        rows, config = state.prepared.train, state.config
        for line in closing_hints(
            history,
            self._predicted,
            rows.class_names,
            epochs=state.step / state.steps_per_epoch,
            is_robust=config.method.name != "cce",
            counts=np.bincount(rows.labels, minlength=rows.num_classes),
            batch_size=config.train.batch_size if config.data.balanced is None else None,
        ):
            self.display.say(line)

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


def summary(history: list[dict[str, Any]], best_step: int | None = None) -> dict[str, Any]:
    """The best and the final row of a history.

    ``best`` has the highest accuracy on the held-out labels, as a user without clean data would
    choose. Among equal rows it is the last: with few held-out rows all are often right after the
    first steps, when little is learned. ``best_test`` has the highest test accuracy, the paper's
    "Best", and is the first of equal rows. Without a held-out part ``best`` is the row of
    ``best_step``, or else ``final``, and never of another epoch: no weights are kept for it.

    Examples:
        >>> rows = [{"step": 1, "test_accuracy": 0.9, "validation_accuracy": 0.4},
        ...         {"step": 2, "test_accuracy": 0.8, "validation_accuracy": 0.5}]
        >>> {name: row["step"] for name, row in summary(rows).items()}
        {'best': 2, 'best_test': 1, 'final': 2}
    """
    final = history[-1]
    chosen = next((row for row in history if row["step"] == best_step), None)
    best = _highest(history[::-1], HELD_OUT.key) or chosen or final
    return {"best": best, "best_test": _highest(history, TEST.key), "final": final}


def _of_last_stage(history: list[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """The rows after a restart: before it another network was trained on another loss."""
    border = 0 if state.restart is None else state.restart.epoch * state.steps_per_epoch
    return [row for row in history if row["step"] > border] or history


def _highest(history: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The first row of those with the highest number."""
    known = [row for row in history if row.get(name) is not None]
    return max(known, key=lambda row: float(row[name]), default=None)


def _labels(state: State) -> RunLabels:
    train = state.prepared.train
    return RunLabels(
        train.row_ids,
        train.labels,
        np.array(train.class_names),
        train.clean_labels,
        state.prepared.is_planted,
        state.prepared.positions(train.row_ids),
    )


def _held_labels(state: State) -> RunLabels | None:
    parts = state.prepared.unseen
    if not parts:
        return None
    clean = [split.clean_labels for split in parts if split.clean_labels is not None]
    row_ids = np.concatenate([split.row_ids for split in parts])
    return RunLabels(
        row_ids,
        np.concatenate([split.labels for split in parts]),
        np.array(parts[0].class_names),
        np.concatenate(clean) if len(clean) == len(parts) else None,
        position=state.prepared.positions(row_ids),
    )
