import json

import numpy as np
import pytest

ROWS = 400
EPOCHS = 6
STEPS = 40  # an epoch


def history_row(step, **measures):
    row = {"step": step, "epoch": step / STEPS, "seconds": step * 0.01, "learning_rate": 0.1}
    names = ("test", "validation", "noisy", "clean", "corrected", "hybrid")
    row |= {"train_loss": 1.0, **{f"{name}_accuracy": None for name in names}}
    return row | measures


def made_up_history(memory, seed):
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = []
    for epoch in range(1, EPOCHS + 1):
        part, shake = epoch / EPOCHS, float(generator.uniform(-0.02, 0.02))
        learned = 1 - np.exp(-4 * part)
        memorised = memory * part**2
        rows.append(
            history_row(
                epoch * STEPS,
                test_accuracy=round(0.95 * learned - 0.4 * memorised + shake, 4),
                validation_accuracy=round(0.6 * learned + shake, 4),
                noisy_accuracy=round(0.05 + 0.8 * memorised, 4),
                clean_accuracy=round(0.97 * learned, 4),
                corrected_accuracy=round(0.9 * learned * (1 - memorised), 4),
                hybrid_accuracy=round(0.96 * learned - 0.1 * memorised, 4),
            )
        )
    return rows


@pytest.fixture
def make_run(run_maker, tmp_path):
    return run_maker(tmp_path)


@pytest.fixture(scope="session")
def run_maker():
    return in_folder


def in_folder(place):
    """Writes run folders with plain json and numpy, as a training run would leave them."""

    def make(
        name="run",
        *,
        method="cce",
        arguments=None,
        seed=1,
        data="digits",
        noise="symmetric:0.4",
        model="small_cnn",
        memory=0.8,
        rows=None,
        finished=True,
        truth=True,
        seconds_per_step=0.01,
        class_names=("zero", "one", "two", "three"),
        row_ids=None,
        extra=None,
        environment=None,
        progress=None,
    ):
        folder = place / name
        folder.mkdir(parents=True)
        rows = made_up_history(memory, seed) if rows is None else rows
        config = {
            "data": {"name": data, "root": None},
            "noise": noise,
            "model": {"name": model},
            "method": {"name": method, "arguments": arguments or {}},
            "train": {"epochs": EPOCHS, "learning_rate": 0.1, "batch_size": 10},
            "seed": seed,
        }
        write(folder / "config.json", config | (extra or {}))
        write(
            folder / "env.json",
            environment
            or {"python": "3.11", "torch": "2.13.0", "device": "cpu", "threads": 1, "commit": None},
        )
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "history.jsonl").write_text(text, encoding="utf-8")
        if finished:
            write(folder / "result.json", made_up_result(rows, seconds_per_step))
        write(
            folder / "progress.json",
            progress
            or {
                "step": rows[-1]["step"] if rows else 0,
                "total_steps": EPOCHS * STEPS,
                "status": "finished" if finished else "running",
                "message": "",
            },
        )
        write_rows(folder, memory, seed, truth, class_names, row_ids)
        return folder

    return make


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


def made_up_result(rows, seconds_per_step):
    def highest(key):
        known = [row for row in rows if row[key] is not None]
        return max(known, key=lambda row: row[key]) if known else None

    return {
        "best": highest("validation_accuracy"),
        "best_test": highest("test_accuracy"),
        "final": rows[-1],
        "steps": rows[-1]["step"],
        "seconds": rows[-1]["step"] * seconds_per_step,
        "seconds_per_step": seconds_per_step,
        "status": "finished",
    }


def write_rows(folder, memory, seed, truth, class_names, row_ids):
    generator = np.random.Generator(np.random.PCG64(seed))
    clean = generator.integers(0, len(class_names), ROWS)
    wrong = generator.random(ROWS) < 0.4
    given = np.where(wrong, (clean + 1) % len(class_names), clean)
    ids = np.array([f"train/{row}" for row in range(ROWS)]) if row_ids is None else row_ids
    columns = {"row_ids": ids, "given": given, "class_names": np.array(class_names)}
    np.savez(folder / "labels.npz", **columns, **({"clean": clean} if truth else {}))
    (folder / "dynamics").mkdir()
    for epoch in range(1, EPOCHS + 1):
        part = epoch / EPOCHS
        centre = np.where(wrong, -4 + 7 * memory * part, -1 + 5 * part)
        margin = (centre + generator.normal(0, 1.5, ROWS)).astype(np.float32)
        p = 1 / (1 + np.exp(-margin))
        margin[:3] = np.nan  # rows that this epoch did not see
        weight = (2 * (1 - p) if memory > 0.5 else np.exp(8 * p * (1 - p))).astype(np.float32)
        weight[:3] = np.nan
        np.savez(
            folder / "dynamics" / f"epoch-{epoch:05d}.npz",
            margin=margin,
            weight=weight,
            predicted=np.where(np.isnan(margin), -1, given).astype(np.int32),
        )
