"""Retrieval with the features of a trained run."""

import json
import os
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from imae.data import Split, Unlabelled
from imae.data.split import position_ids
from imae.data.tracklets import Tracklets, as_tracklets, load_tracklets
from imae.metrics.retrieval import Retrieval, evaluate
from imae.models import Network
from imae.train.predict import (
    Progress,
    load_network,
    load_test_rows,
    plain_batches,
    prepare_rows,
    write_bytes,
)
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
        ArgumentError: If an option cannot be used.
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
    network = load_network(run, which)
    tracklets = _tracklets(run, root)
    frames = Unlabelled(tracklets.frames, position_ids(len(tracklets.frames)))
    features = tracklet_features(run, network, prepare_rows(run, frames), tracklets, progress)
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


def store_retrieval(run: Run, found: Retrieval) -> None:
    """Writes the measures of the final weights into the run folder, where tables find them.

    Raises:
        ImaeError: If the file cannot be written.
    """
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
