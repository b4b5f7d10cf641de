import numpy as np
import pytest
import torch

from imae.data import Unlabelled
from imae.data.assemble import position_ids
from imae.data.tracklets import Tracklets, as_tracklets
from imae.errors import DataError
from imae.metrics.retrieval import evaluate
from imae.train import Run, build_config, evaluate_retrieval, train
from imae.train.measure import tracklet_features
from imae.train.predict import load_network, load_test_rows, prepare_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = {
        "data": {"name": "digits", "hold_out": 0.0},
        "model": {"name": "mlp"},
        "train": {"steps": 20, "evaluate_batch_size": 7},
        "machine": {"accelerator": "cpu", "threads": 1},
        "out": str(tmp_path_factory.mktemp("runs") / "digits"),
    }
    return train(build_config(config))


def plain_features(run, rows):
    inputs = load_test_rows(run).inputs
    with torch.inference_mode():
        return load_network(run, "final").features(inputs.batch(rows, generator=None)).numpy()


def test_a_tracklet_is_the_average_of_its_frames_and_stray_frames_count_nowhere(run):
    frames = load_test_rows(run).inputs
    starts, stops = np.array([0, 5, 11]), np.array([5, 8, 30])  # frames 8 to 10 are of none
    tracklets = Tracklets(
        frames, starts, stops, np.arange(3), np.ones(3, np.int64), np.ones(3, bool)
    )
    split = prepare_rows(run, Unlabelled(frames, position_ids(len(frames))))
    found = tracklet_features(run, load_network(run, "final"), split, tracklets)
    expected = [
        plain_features(run, np.arange(*ends)).mean(axis=0)
        for ends in zip(starts, stops, strict=True)
    ]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-5, atol=1e-6)


def test_every_test_row_is_a_query_for_all_others(run):
    test = load_test_rows(run)
    features = plain_features(run, np.arange(len(test)))
    similarity = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = similarity @ similarity.T
    np.fill_diagonal(similarity, -2)
    nearest = test.labels[similarity.argmax(axis=1)]
    found = evaluate_retrieval(run.path)
    assert found.cmc[1] == pytest.approx(np.mean(nearest == test.labels), abs=1e-9)
    assert found.num_without_match == 0


def test_the_measure_is_that_of_the_tracklets_of_a_set(run, monkeypatch):
    test = load_test_rows(run)
    rows = np.arange(0, 150, 5)
    tracklets = Tracklets(
        test.inputs, rows, rows + 5, rows % 9, rows % 2 + 1, is_query=rows % 3 == 0
    )
    monkeypatch.setattr("imae.train.measure.load_tracklets", lambda *_, **__: tracklets)
    features = np.stack([plain_features(run, np.arange(row, row + 5)).mean(axis=0) for row in rows])
    chosen = tracklets.query_rows
    expected = evaluate(
        features[chosen],
        features,
        tracklets.person_ids[chosen],
        tracklets.person_ids,
        tracklets.cameras[chosen],
        tracklets.cameras,
    )
    found = evaluate_retrieval(run)
    assert found.mean_average_precision == pytest.approx(expected.mean_average_precision, abs=1e-6)


def test_tracklets_that_share_a_frame_are_refused(run):
    frames = load_test_rows(run).inputs
    ones = np.ones(2, np.int64)
    with pytest.raises(DataError, match="tracklets 1 and 0 share frames"):
        Tracklets(frames, np.array([4, 0]), np.array([8, 5]), ones, ones, ones.astype(bool))


def test_true_labels_are_the_identities():
    from dataclasses import replace

    from imae.data import load

    test = load("digits").test
    wrong = replace(test, labels=np.zeros_like(test.labels), clean_labels=test.labels)
    assert as_tracklets(wrong).person_ids.tolist() == test.labels.tolist()


def test_rows_from_python_cannot_be_read_again(run):
    config = run.config.model_copy(
        update={"data": run.config.data.model_copy(update={"from_python": True})}
    )
    given = Run(run.path)
    given.config = config
    with pytest.raises(DataError, match="its rows were given in Python"):
        evaluate_retrieval(given)
