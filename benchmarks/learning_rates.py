"""Learning rates from 0.002 to 0.2 on digits: how far each loss falls below its own best.

    python benchmarks/learning_rates.py --scratch FOLDER --out results/learning_rates

The demo's recipe (40% of the labels replaced evenly, 20 epochs, no augmentation) with its network
and with an MLP, one seed. The table has the final test accuracy, one row for each network and loss.
Cells that are in the record in the output folder are not run again; with ``--dry-run`` only the
table is made.
Nothing is chosen by these numbers: they show how much a wrong rate costs.
"""

import argparse
import json
from pathlib import Path

import torch
from machine import command_line

from imae.errors import ImaeError
from imae.records import RunFolder
from imae.train import train

RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
NETWORKS = ("small_cnn", "mlp")
LOSSES = ("imae_capped", "cce", "gce")
FIXED_T = ("imae_capped:T=0", "imae_capped:T=8")  # at one low rate, to see what T costs there
LOW_RATE = 0.005
DIVERGED = -1.0


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--scratch", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--out", type=Path, default=Path("results/learning_rates"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--dry-run", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = arguments.out / f"epochs{arguments.epochs}-seed{arguments.seed}.json"
    found: dict[str, float] = json.loads(record.read_text()) if record.exists() else {}
    for name in cells() if not arguments.dry_run else ():
        if name not in found:
            found[name] = measured(name, arguments)
            record.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    record.with_suffix(".md").write_text(table(found))
    print(table(found))


def cells() -> list[str]:
    """One name for each run: network, loss and learning rate."""
    rows = [f"{network} {loss}" for network in NETWORKS for loss in LOSSES]
    fixed = [f"{NETWORKS[0]} {loss} {LOW_RATE}" for loss in FIXED_T]
    return [f"{row} {rate}" for row in rows for rate in RATES] + fixed


def measured(name: str, arguments: argparse.Namespace) -> float:
    """Final test accuracy in percent; -1 if the run diverged."""
    network, loss, rate = name.split()
    loss, _, T = loss.partition(":T=")
    folder = arguments.scratch / f"{network}-{loss}{T}-{rate}-{arguments.epochs}-{arguments.seed}"
    config = {
        "data": {"name": "digits", "augment": False},
        "noise": "symmetric:0.4",
        "model": {"name": network},
        "method": {"name": loss, "arguments": {"T": float(T)} if T else {}},
        "optimizer": {"lr": float(rate)},
        "train": {"epochs": arguments.epochs},
        "machine": {"threads": 1},
        "seed": arguments.seed,
        "out": str(folder),
    }
    run = RunFolder(folder)
    try:
        if run.result() is None:
            train(config)
    except ImaeError as error:
        if "not finite" not in str(error):
            raise
        print(f"{name}: {error}")
        return DIVERGED
    result = run.result()
    assert result is not None
    return round(100 * float(result["final"]["test_accuracy"]), 2)


def table(found: dict[str, float]) -> str:
    """The table as text; a dash for a cell that was not run."""
    lines = [
        "| network | loss | " + " | ".join(map(str, RATES)) + " | highest less lowest |",
        "|---|---|" + "---|" * (len(RATES) + 1),
    ]
    for row in dict.fromkeys(name.rsplit(" ", 1)[0] for name in cells()):
        values = [found.get(f"{row} {rate}") for rate in RATES]
        known = [each for each in values if each is not None]
        texts = ["-" if each is None else f"{each:.1f}" for each in values]
        texts = [
            "diverged" if each == DIVERGED else text
            for each, text in zip(values, texts, strict=True)
        ]
        is_whole = len(known) == len(RATES) and DIVERGED not in known
        fall = f"{max(known) - min(known):.1f}" if is_whole else "-"
        lines.append(f"| {' | '.join(row.split())} | {' | '.join(texts)} | {fall} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
