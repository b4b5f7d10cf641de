"""The recipe of MARS on a small tree of its layout."""

import json

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from imae.recipes import RECIPES, reproduce
from imae.recipes.tables.paper_figures import mean_margin
from imae.records import RunFolder
from imae.train import build_config

# Tracklets: person, camera, number of frames.
PARTS = {
    "train": [(1, 1, 4), (1, 2, 3), (7, 6, 5)],
    "test": [(2, 1, 2), (2, 4, 3), (9, 5, 1), (9, 1, 2)],
}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "mars"
    (folder / "info").mkdir(parents=True)
    generator = np.random.default_rng(1)
    for part, tracklets in PARTS.items():
        names, table = [], []
        for number, (person, camera, frames) in enumerate(tracklets, 1):
            table.append((len(names) + 1, len(names) + frames, person, camera))
            for frame in range(1, frames + 1):
                names.append(f"{person:04d}C{camera}T{number:04d}F{frame:03d}.jpg")
                path = folder / f"bbox_{part}" / f"{person:04d}" / names[-1]
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(generator.integers(0, 256, (64, 32, 3), np.uint8)).save(path)
        (folder / "info" / f"{part}_name.txt").write_text("\n".join(names) + "\n")
        content = {f"track_{part}_info": np.array(table, float)}
        savemat(folder / "info" / f"tracks_{part}_info.mat", content)
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([[1.0, 3.0]])})
    return tmp_path


def test_the_papers_settings():
    by_name = {
        cell.name: build_config(cell.settings) for cell in RECIPES.build("mars").cells("paper")
    }
    config = by_name["imae"]
    assert (config.data.name, config.model.name) == ("mars", "bn_inception")
    assert (config.train.steps, config.train.batch_size) == (50_000, 180)
    assert (config.optimizer.lr, config.optimizer.momentum) == (0.01, 0.9)
    assert config.optimizer.weight_decay == 5e-4
    assert (config.schedule.every, config.schedule.divide_by) == (10_000, 2.0)
    assert config.method.arguments == {"T": 8.0}
    assert {"cce", "mae", "gce"} < set(by_name)


@pytest.mark.slow
def test_tiny_trains_and_retrieves_on_a_tree_of_the_layout(root, tmp_path):
    out = tmp_path / "out"
    settings = {"data": {"root": str(root)}, "machine": {"threads": 1}}
    reproduce("mars", budget="tiny", only=["cce", "imae"], out=out, settings=settings)
    lines = (out / "retrieval.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["Loss", "---", "CCE", "IMAE"]
    assert (out / "abnormal_examples.png").read_bytes().startswith(b"\x89PNG")
    found = (out / "abnormal_examples.md").read_text()
    assert "the truth is not known" in found
    labels = RunFolder(out / "runs" / "imae-seed123").labels()
    margins = mean_margin(RunFolder(out / "runs" / "imae-seed123"))
    assert all(
        (name in found) == seen
        for name, seen in zip(labels.row_ids, ~np.isnan(margins), strict=True)
    )
    table = (out / "table.md").read_text()
    assert "unless a note says otherwise" in table
    assert "Three steps of every cell" in table
    stored = json.loads((out / "runs" / "imae-seed123" / "retrieval.json").read_text())
    assert (stored["queries"], stored["without_match"]) == (2, 0)
