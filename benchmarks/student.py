"""Whether a second network, trained on the labels that the best epoch predicts, is better.

    python benchmarks/student.py --scratch FOLDER --out results/student

The teacher is trained on noisy labels; its best epoch by held-out given labels predicts a label for
every training row, held-out rows included, and a student is trained on these with the same
settings (`imae train --student`). The table has the test accuracy of the teacher (best and last
epoch) and of the student (last epoch). For CIFAR, the rows are frozen features
(`efficientnet_lite0`) of 10,000 images. No choice uses the test rows. Finished pairs are reused.
"""

import json
import shutil
import statistics
from pathlib import Path

import torch
from machine import command_line, describe

from imae.train import Run, build_config, train, train_student
from tune import PAIRS, SETTINGS, slug, write_rows

SEEDS = (1, 2, 3)
LOSSES = ("imae_capped", "gce", "cce")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for data and runs")
    parser.add_argument("--out", type=Path, default=Path("results/student"))
    parser.add_argument("--only", default="", help="settings whose name begins so")
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for title in SETTINGS:
        for loss in arguments.losses:
            for seed in arguments.seeds if title.startswith(arguments.only) else ():
                path = arguments.out / f"{slug(title)}-{loss}-seed{seed}.json"
                if not path.exists():
                    found = measured(title, loss, seed, arguments.scratch)
                    path.write_text(json.dumps(found, indent=2) + "\n")
    write_table(arguments.out)


def measured(title: str, loss: str, seed: int, scratch: Path) -> dict[str, object]:
    """Test accuracy of a teacher and of its student."""
    data, noise = SETTINGS[title]
    rows, _ = write_rows(data, scratch)
    place = scratch / "students" / f"{slug(title)}-{loss}-seed{seed}"
    teacher = trained(rows, noise, loss, seed, place / "teacher")
    out = place / "student"
    if not (out / "result.json").exists():
        shutil.rmtree(out, ignore_errors=True)  # one that was stopped
        train_student(teacher, out=out)
    student = Run(out)
    return {
        "setting": title,
        "loss": loss,
        "seed": seed,
        "teacher_best": test_accuracy(teacher, "best"),
        "teacher_final": test_accuracy(teacher, "final"),
        "student_final": test_accuracy(student, "final"),
    }


def trained(rows: Path, noise: str | None, loss: str, seed: int, out: Path) -> Run:
    if (out / "result.json").exists():
        return Run(out)
    shutil.rmtree(out, ignore_errors=True)  # one that was stopped
    is_small = rows.stem == "digits" or "digits" in rows.parent.name
    config = {
        "data": {"name": str(rows)},
        "noise": noise,
        "noise_map": PAIRS if noise is not None and noise.startswith("pairs") else None,
        "method": {"name": loss},
        "train": {"epochs": 40 if is_small else 20, "batch_size": 64 if is_small else 128},
        "machine": {"threads": 1},
        "seed": seed,
        "out": str(out),
    }
    return train(build_config(config))


def test_accuracy(run: Run, moment: str) -> float:
    result = run.folder.result()
    assert result is not None
    return float(result[moment]["test_accuracy"])


def write_table(out: Path) -> None:
    found = [json.loads(path.read_text()) for path in sorted(out.glob("*-seed*.json"))]
    keys = ("teacher_final", "teacher_best", "student_final")
    lines = [
        "# A student trained on the labels of the best epoch",
        "",
        f"Test accuracy (%), mean over seeds; `python benchmarks/student.py`. {describe()}",
        "",
        "| setting | loss | seeds | teacher, last epoch | teacher, best epoch | student |",
        "|---|---|---:|---:|---:|---:|",
    ]
    gains = []
    for title in SETTINGS:
        for loss in LOSSES:
            mine = [each for each in found if each["setting"] == title and each["loss"] == loss]
            if mine:
                means = [100 * statistics.mean(each[key] for each in mine) for key in keys]
                gains.append(means[2] - means[1])
                shown = " | ".join(f"{mean:.1f}" for mean in means)
                lines.append(f"| {title} | {loss} | {len(mine)} | {shown} |")
    if gains:
        mean = statistics.mean(gains)
        lines += ["", f"Student against the teacher's best epoch: {mean:+.1f} points on average."]
    (out / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
