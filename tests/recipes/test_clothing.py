"""The recipes of clothing photos, on small trees that the tests make."""

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from imae.data.sources.photo_sets import CLASSES
from imae.errors import ArgumentError
from imae.models import build
from imae.recipes import RECIPES, reproduce
from imae.train import build_config

PARTS = {"noisy_train": 14, "clean_train": 2, "clean_val": 3, "clean_test": 3}


@pytest.fixture
def root(tmp_path):
    """Clothing1M in its official layout: lists of keys, labels, and photos of other sizes."""
    folder = tmp_path / "clothing1m"
    generator = np.random.default_rng(1)
    labels = {"noisy": [], "clean": []}
    for part, number in PARTS.items():
        keys = [f"images/{part}/{place}.jpg" for place in range(number)]
        for place, key in enumerate(keys):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 256, (40 + place, 64, 3), np.uint8)
            Image.fromarray(pixels).save(folder / key)
            labels[part.split("_")[0]].append(f"{key} {place % len(CLASSES)}")
        (folder / f"{part}_key_list.txt").write_text("\n".join(keys) + "\n")
    for kind, lines in labels.items():
        (folder / f"{kind}_label_kv.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.slow
def test_clothing1m_goes_from_its_files_to_its_table(root, tmp_path):
    weights = tmp_path / "resnet50.safetensors"
    save_file(build("resnet50", num_classes=1000).state_dict(), weights)
    small = {"steps": 4, "batch_size": 7, "evaluate_every": 4, "checkpoint_every": 4}
    made = reproduce(
        "clothing1m",
        budget="paper",
        only=["imae", "masking"],
        out=tmp_path / "out",
        settings={
            "data": {"root": str(root)},
            "train": small,
            "model": {"init": str(weights)},
            "machine": {"threads": 1, "channels_last": False},
        },
    )
    assert [outcome.cell.name for outcome in made.outcomes if outcome.runs] == ["imae", "masking"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert "`train.steps=4`" in text
    assert "| IMAE | 1 |" in text


def test_the_paths_that_only_the_user_knows_are_asked_for(tmp_path):
    with pytest.raises(ArgumentError, match=r"needs --set model\.init=PATH"):
        reproduce("clothing1m", budget="paper", out=tmp_path)
    with pytest.raises(ArgumentError, match=r"needs --set data\.name=PATH"):
        reproduce("clothing_photos", budget="features", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_photos_are_trained_on_frozen_features_by_every_method():
    cells = RECIPES.build("clothing_photos").cells("features")
    configs = [build_config(cell.settings) for cell in cells]
    assert {config.data.features for config in configs} == {"efficientnet_lite0"}
    assert {config.noise for config in configs} == {"symmetric:0.4"}
    assert {"imae_capped", "imae_authors", "cce", "l2rw"} < {cell.name for cell in cells}


def test_the_folder_of_photos_may_be_named_and_other_data_may_not(tmp_path):
    with pytest.raises(ArgumentError, match=r"data\.name: belongs to the recipe"):
        reproduce("cifar10", out=tmp_path / "out", settings={"data": {"name": "digits"}})
    changed = {"data": {"name": str(tmp_path / "photos")}, "noise": "symmetric:0.1"}
    with pytest.raises(ArgumentError, match=r"noise: belongs to the recipe"):
        reproduce("clothing_photos", out=tmp_path / "out", settings=changed)
