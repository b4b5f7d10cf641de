"""Measures of a trained run beyond accuracy: retrieval, and robustness to attacks."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae._draws import torch_generator
from imae.data import ArrayImages, ImageFiles, Split, Unlabelled, load_unlabelled, sample_rows
from imae.data.assemble import position_ids
from imae.data.tracklets import Tracklets, as_tracklets, load_tracklets
from imae.errors import ArgumentError, DataError, check_choice
from imae.metrics.retrieval import Retrieval, evaluate
from imae.metrics.robustness import fgsm, pgd
from imae.models import Network
from imae.train.predict import (
    Progress,
    load_network,
    load_test_rows,
    plain_batches,
    prepare_rows,
    write_bytes,
)
from imae.train.preparation import Preparation, frozen_network, image_features, read_preparation
from imae.train.run import Run

STORED = "retrieval.json"


def evaluate_retrieval(
    run: Run | str | os.PathLike[str],
    *,
    which: str = "final",
    ranks: Sequence[int] = (1, 5, 10, 20),
    rerank: bool = False,
    root: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Retrieval:
    """How well the features of a run rank the tracklets of its data set.

    The feature of a frame is the input of the network's last layer, and that of a tracklet the
    average over all its frames, which are read a batch at a time. For data without tracklets every
    test row is a query, and all other test rows are its gallery.

    Args:
        run: The run, or its folder.
        which: "final", or "best" on the held-out labels.
        ranks: Ranks k of the CMC.
        rerank: Whether to re-rank by k-reciprocal neighbours.
        root: Folder of the data, if it is no longer where the run found it.
        progress: Called with the frames that are done and all frames.

    Raises:
        DataError: If there is no trained run, or its data has neither tracklets nor test rows.

    Examples:
        >>> import tempfile
        >>> from imae.train import build_config, train
        >>> run = train(build_config({
        ...     "data": {"name": "digits"},
        ...     "model": {"name": "mlp"},
        ...     "train": {"steps": 50},
        ...     "out": tempfile.mkdtemp(),
        ... }))
        >>> evaluate_retrieval(run).cmc[1] > 0.8
        True

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, appendix (average of the frames,
        cosine similarity).
    """
    run = run if isinstance(run, Run) else Run(run)
    tracklets, features = tracklet_rows(run, which=which, root=root, progress=progress)
    query, gallery = tracklets.query_rows, tracklets.gallery_rows
    identities, cameras = tracklets.person_ids, tracklets.cameras
    return evaluate(
        features[query],
        features[gallery],
        identities[query],
        identities[gallery],
        cameras[query],
        cameras[gallery],
        ranks,
        rerank=rerank,
    )


def tracklet_rows(
    run: Run,
    *,
    which: str = "final",
    root: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Tracklets, NDArray[np.float64]]:
    """The tracklets of a run's data, and the feature of each; see ``evaluate_retrieval``."""
    network = load_network(run, which)
    tracklets = _tracklets(run, root)
    frames = Unlabelled(tracklets.frames, position_ids(len(tracklets.frames)))
    features = tracklet_features(run, network, prepare_rows(run, frames), tracklets, progress)
    return tracklets, features


def store_retrieval(run: Run, found: Retrieval) -> None:
    """Writes the measures of the final weights into the run folder, from which tables read them."""
    content = {
        "mean_average_precision": found.mean_average_precision,
        "cmc": {str(rank): share for rank, share in found.cmc.items()},
        "queries": len(found.first_match),
        "without_match": found.num_without_match,
    }
    write_bytes(run.path / STORED, (json.dumps(content, indent=2) + "\n").encode())


@torch.inference_mode()
def tracklet_features(
    run: Run,
    network: Network,
    frames: Split,
    tracklets: Tracklets,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """The average of the features of the frames of every tracklet, shape (K, E).

    Args:
        run: The run, for its batch size and workers.
        network: Its network, in evaluation mode.
        frames: The frames, as the network takes them.
        tracklets: Which frames belong together.
        progress: Called with the frames that are done and all frames.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = network.to(device)
    owners = tracklets.owners
    sums: NDArray[np.float64] | None = None
    done = 0
    for batch in plain_batches(run, frames).epoch(0):
        features = network.features(batch.inputs.to(device)).double().cpu().numpy()
        if sums is None:
            sums = np.zeros((len(tracklets), features.shape[1]))
        owner = owners[batch.row.numpy()]
        np.add.at(sums, owner[owner >= 0], features[owner >= 0])
        done += len(batch)
        if progress is not None:
            progress(done, len(frames))
    assert sums is not None, "a data set has rows"
    averages: NDArray[np.float64] = sums / (tracklets.stops - tracklets.starts)[:, None]
    return averages


def _tracklets(run: Run, root: str | os.PathLike[str] | None) -> Tracklets:
    settings = run.config.data
    if not settings.from_python:
        place = settings.root if root is None else root
        found = load_tracklets(settings.name, root=place, **settings.options)
        if found is not None:
            return found
    return as_tracklets(load_test_rows(run, root))


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
        rows: Attack a sample of this many test rows; all by default.
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
    """Test images with their true labels, and the mean and deviation of their channels."""
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
