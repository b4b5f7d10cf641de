"""Accuracy of a trained run under adversarial perturbations of its test images."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from imae._draws import torch_generator
from imae.data import ArrayImages, ImageFiles, Split, Unlabelled, load_unlabelled, sample_rows
from imae.errors import ArgumentError, DataError, check_choice
from imae.metrics.robustness import fgsm, pgd
from imae.train.predict import Progress, load_network, load_test_rows, plain_batches
from imae.train.preparation import Preparation, frozen_network, image_features, read_preparation
from imae.train.run import Run

ATTACKS = ("fgsm", "pgd")


@dataclass(frozen=True)
class Robustness:
    """Accuracy with and without an attack, as fractions.

    Args:
        num_rows: Test rows that were attacked.
        clean: Accuracy on the images as they are.
        attacked: Accuracy on the perturbed images.
    """

    num_rows: int
    clean: float
    attacked: float


def evaluate_robustness(
    run: Run | str | os.PathLike[str],
    *,
    epsilon: float,
    attack: str = "pgd",
    steps: int = 10,
    rows: int | None = None,
    which: str = "final",
    root: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Robustness:
    """Accuracy on the test images of a run's data, plain and perturbed.

    The perturbation is chosen with knowledge of the network and of the true label. It changes no
    pixel by more than epsilon and keeps every pixel in [0, 1]. For a run on features of a frozen
    network the images are perturbed, not the features.

    Args:
        run: The run, or its folder.
        epsilon: Largest change of a pixel, with pixels scaled to [0, 1]; often 8/255.
        attack: "fgsm", one step, or "pgd", several steps from a random start.
        steps: Steps of PGD.
        rows: Attack a sample of so many test rows; all by default.
        which: "final", or "best" on the held-out labels.
        root: Folder of the data, if it is no longer where the run found it.
        progress: Called with the rows that are done and all rows.

    Raises:
        ArgumentError: If an option cannot be used.
        DataError: If there is no trained run, or its data has no test images.

    Examples:
        >>> import tempfile
        >>> from imae.train import build_config, train
        >>> run = train(build_config({
        ...     "data": {"name": "digits"},
        ...     "model": {"name": "mlp"},
        ...     "train": {"steps": 50},
        ...     "out": tempfile.mkdtemp(),
        ... }))
        >>> found = evaluate_robustness(run, epsilon=0.3, attack="fgsm")
        >>> found.attacked < found.clean
        True
    """
    check_choice("attack", attack, ATTACKS)
    if not 0 <= epsilon <= 1:
        raise ArgumentError(f"epsilon must be between 0 and 1, the range of a pixel, got {epsilon}")
    run = run if isinstance(run, Run) else Run(run)
    preparation = read_preparation(run.folder)
    images, mean, std = _images(run, preparation, rows, root)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = _on_images(run, preparation, which, device)
    mean, std = mean.to(device), std.to(device)
    size, low, high = epsilon / std, (0 - mean) / std, (1 - mean) / std
    generator = torch_generator(run.config.seed, "attack")
    clean = attacked = done = 0
    for batch in plain_batches(run, images).epoch(0):
        inputs, target = batch.inputs.to(device), batch.target.to(device)
        if attack == "fgsm":
            moved = fgsm(network, inputs, target, epsilon=size, low=low, high=high)
        else:
            moved = pgd(
                network,
                inputs,
                target,
                epsilon=size,
                steps=steps,
                generator=generator,
                low=low,
                high=high,
            )
        with torch.inference_mode():
            clean += int((network(inputs).argmax(1) == target).sum())
            attacked += int((network(moved).argmax(1) == target).sum())
        done += len(batch)
        if progress is not None:
            progress(done, len(images))
    return Robustness(len(images), clean / len(images), attacked / len(images))


def _images(
    run: Run, preparation: Preparation, rows: int | None, root: str | os.PathLike[str] | None
) -> tuple[Split, Tensor, Tensor]:
    """Test images under their true labels, and the mean and deviation of their channels."""
    like = preparation.like
    if not isinstance(like, ArrayImages | ImageFiles):
        raise DataError(f"{run.path}: its rows are not images, so there are no pixels to change")
    test = load_test_rows(run, root)
    if rows is not None and rows < len(test):
        test = sample_rows(test, rows, run.config.seed)
    given = load_unlabelled(Unlabelled(test.inputs, test.row_ids), like=like)
    labels = test.labels if test.clean_labels is None else test.clean_labels
    split = Split(given.inputs, labels, test.row_ids, test.class_names)
    mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in (like.mean, like.std))
    return split, mean, std


def _on_images(
    run: Run, preparation: Preparation, which: str, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """The network of a run as a function of images, frozen features included."""
    network = load_network(run, which).to(device).requires_grad_(False)
    scale = preparation.features
    if scale is None:
        return network
    assert run.config.data.features is not None
    frozen = frozen_network(run.config.data.features).to(device).eval().requires_grad_(False)
    features = image_features(frozen, preparation.like.shape)
    mean, std = (torch.tensor(each, device=device) for each in (scale.mean, scale.std))

    def logits(images: Tensor) -> Tensor:
        scores: Tensor = network((features(images) - mean) / std)
        return scores

    return logits
