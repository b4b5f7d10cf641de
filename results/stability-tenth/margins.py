"""How far the log-odds of the given label go in a run, epoch by epoch.

    python results/stability-tenth/margins.py RUN ... > results/stability-tenth/margins.txt

RUN is a run folder with its `dynamics` and `labels.npz`.
"""

import sys

import numpy as np

from imae.records import RunFolder

_SATURATED = 16.0  # the recipe's; from about 17 on p = 1 in float32


def main() -> None:
    right_columns = "right_p10 right_median right_p90 right_p99 right_saturated"
    print(f"run epoch {right_columns} wrong_median mean_weight")
    for name in sys.argv[1:]:
        run = RunFolder(name)
        labels = run.labels()
        assert labels.clean is not None
        is_wrong = labels.given != labels.clean
        for epoch in run.epochs():
            rows = run.dynamics(epoch)
            margin = rows.margin.astype(np.float64)
            is_seen = ~np.isnan(margin)  # in a last, part epoch not all rows are
            right = margin[~is_wrong & is_seen]
            quantiles = np.quantile(right, (0.1, 0.5, 0.9, 0.99))
            print(
                run.path.name,
                epoch,
                *(f"{value:.2f}" for value in quantiles),
                f"{np.mean(right > _SATURATED):.3f}",
                f"{np.median(margin[is_wrong & is_seen]):.2f}",
                f"{np.mean(rows.weight[is_seen]):.3f}",
            )


if __name__ == "__main__":
    main()
