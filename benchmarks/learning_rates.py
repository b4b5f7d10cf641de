"""Learning rates from 0.002 to 0.2 on digits: how far each loss falls below its own best.

    python benchmarks/learning_rates.py --scratch FOLDER --out results/learning_rates

The demo's recipe (40% of the labels replaced evenly, 20 epochs, no augmentation) with its network
and with an MLP. Final test accuracy, one row for each loss and network. Finished runs are read
again. Nothing is chosen by these numbers: they show how much a wrong rate costs.
"""

import argparse
from pathlib import Path

import torch

from imae.records import RunFolder
from imae.train import train

RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
NETWORKS = ("small_cnn", "mlp")
LOSSES = ("imae_capped", "cce", "gce")
LARGEST_FALL = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--out", type=Path, default=Path("results/learning_rates"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=123)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        (network, loss): [measured(network, loss, rate, arguments) for rate in RATES]
        for network in NETWORKS
        for loss in LOSSES
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"table-{arguments.epochs}-seed{arguments.seed}.md"
    path.write_text(table(found))
    print(path.read_text())


def measured(network: str, loss: str, rate: float, arguments: argparse.Namespace) -> float | None:
    """Final test accuracy in percent; None if the run diverged."""
    name = f"{network}-{loss}-{rate}-{arguments.epochs}-seed{arguments.seed}"
    folder = arguments.scratch / name
    if not (folder / "result.json").exists():
        train(
            {
                "data": {"name": "digits", "augment": False},
                "noise": "symmetric:0.4",
                "model": {"name": network},
                "method": {"name": loss},
                "optimizer": {"lr": rate},
                "train": {"epochs": arguments.epochs},
                "machine": {"threads": 1},
                "seed": arguments.seed,
                "out": str(folder),
            }
        )
    result = RunFolder(folder).result()
    return None if result is None else 100 * float(result["final"]["test_accuracy"])


def table(found: dict[tuple[str, str], list[float | None]]) -> str:
    """The table as text, with the largest distance from the best rate in the last column."""
    lines = [
        "| network | loss | " + " | ".join(map(str, RATES)) + " | largest fall |",
        "|---|---|" + "---|" * (len(RATES) + 1),
    ]
    for (network, loss), row in found.items():
        cells = ["diverged" if each is None else f"{each:.1f}" for each in row]
        known = [each for each in row if each is not None]
        fall = "diverged" if len(known) < len(row) else f"{max(known) - min(known):.1f}"
        lines.append(f"| {network} | {loss} | " + " | ".join(cells) + f" | {fall} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
