from pathlib import Path

import numpy as np
import pytest
import torch

from imae.errors import DataError
from imae.models import Network
from imae.train import build_config, evaluate_robustness, preparation, train
from imae.train.predict import load_network, load_test_rows

MACHINE = {"accelerator": "cpu", "threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = {
        "data": {"name": "digits", "hold_out": 0.0},
        "model": {"name": "mlp"},
        "train": {"steps": 60},
        "machine": MACHINE,
        "out": str(tmp_path_factory.mktemp("runs") / "digits"),
    }
    return train(build_config(config))


def test_no_size_is_the_test_accuracy_of_the_run(run):
    for attack in ("fgsm", "pgd"):
        found = evaluate_robustness(run, epsilon=0.0, attack=attack, steps=2)
        assert found.clean == found.attacked == pytest.approx(run.result["final"]["test_accuracy"])


def test_fgsm_moves_pixels_by_epsilon_within_their_range(run):
    """Against the attack written out on pixels of 0 to 1, as a user would."""
    test = load_test_rows(run)
    network = load_network(run, "final")
    images = test.inputs
    mean, std = torch.tensor(images.mean), torch.tensor(images.std)
    pixels = torch.from_numpy(images.pixels).float() / 255
    pixels.requires_grad_()
    target = torch.from_numpy(test.labels)
    loss = torch.nn.functional.cross_entropy(network((pixels - mean) / std), target)
    moved = (pixels + 0.1 * torch.autograd.grad(loss, pixels)[0].sign()).clamp(0, 1).detach()
    expected = (network((moved - mean) / std).argmax(1) == target).double().mean().item()
    found = evaluate_robustness(run, epsilon=0.1, attack="fgsm")
    assert found.attacked == pytest.approx(expected, abs=2.5 / len(test))
    assert found.attacked < found.clean


def test_pgd_is_at_least_as_strong_as_fgsm_and_repeats(run):
    fgsm = evaluate_robustness(run, epsilon=0.2, attack="fgsm")
    pgd = evaluate_robustness(run, epsilon=0.2, attack="pgd", steps=10)
    assert pgd.attacked <= fgsm.attacked
    assert pgd == evaluate_robustness(run, epsilon=0.2, attack="pgd", steps=10)


def test_rows_that_are_no_images_are_refused(tmp_path):
    np.savez(
        tmp_path / "rows.npz",
        features=np.random.default_rng(1).normal(size=(40, 3)),
        labels=np.arange(40) % 2,
    )
    config = {
        "data": {"name": str(tmp_path / "rows.npz")},
        "model": {"name": "mlp"},
        "train": {"steps": 2},
        "machine": MACHINE,
        "out": str(tmp_path / "run"),
    }
    with pytest.raises(DataError, match="its rows are not images"):
        evaluate_robustness(train(build_config(config)), epsilon=0.1)


class Colours(Network):
    """Mean of each quarter of the image, so that features depend on every pixel."""

    @property
    def classifier(self):
        raise NotImplementedError

    def features(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


def test_images_are_perturbed_through_the_frozen_network(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "build", lambda *_, **__: Colours())
    monkeypatch.setattr(preparation, "load_weights", lambda *_: None)
    monkeypatch.setattr(preparation, "pretrained_weights", Path)
    monkeypatch.setattr(preparation, "data_root", lambda: tmp_path)
    labels = np.arange(120) % 3
    noise = np.random.default_rng(1).integers(0, 120, (120, 32, 32, 3))
    pixels = noise + 40 * (labels[:, None, None, None] == np.arange(3))
    split = np.where(np.arange(120) < 80, "train", "test")
    np.savez(tmp_path / "rows.npz", images=pixels.astype(np.uint8), labels=labels, split=split)
    config = {
        "data": {"name": str(tmp_path / "rows.npz"), "features": "efficientnet_lite0"},
        "model": {"name": "mlp"},
        "train": {"steps": 30},
        "machine": MACHINE,
        "out": str(tmp_path / "run"),
    }
    run = train(build_config(config))
    found = evaluate_robustness(run, epsilon=0.3, attack="fgsm")
    assert found.clean == pytest.approx(run.result["final"]["test_accuracy"])
    assert found.clean > 0.9
    assert found.attacked < 0.5
