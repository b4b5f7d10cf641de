import numpy as np
import pytest
import torch

from imae.errors import DataError
from imae.train import build_config, evaluate_robustness, train
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
