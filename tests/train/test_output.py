import copy
import json
import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional

from imae import data
from imae.errors import import_extra
from imae.train import build_config, train
from imae.train.export import describe, export
from imae.train.predict import predict


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a cap, trained until many rows are at it."""
    return train(
        build_config(
            {
                "data": {"name": "digits", "augment": False},
                "model": {"name": "mlp"},
                "method": {"name": "imae_capped", "arguments": {"cap": 0.6}},
                "train": {"steps": 60},
                "optimizer": {"lr": 0.3},
                "machine": {"threads": 1},
                "out": str(tmp_path_factory.mktemp("runs") / "capped"),
            }
        )
    )


def test_predictions_have_the_probabilities_that_the_loss_saw(run):
    predictions = predict(run, "digits")
    assert predictions.probabilities.max() == pytest.approx(0.6, abs=2e-3)
    network = run.load_model()
    step = next(iter(network._forward_hooks))
    test = data.load("digits").test
    inputs = test.inputs.batch(np.arange(len(test)), generator=None)
    with torch.no_grad():
        seen = network(inputs)
        network._forward_hooks.pop(step)
        raw = network(inputs)
    labels = torch.from_numpy(test.labels)
    shown = -np.log(predictions.probabilities[np.arange(len(test)), test.labels]).mean()
    assert shown == pytest.approx(functional.cross_entropy(seen, labels).item(), rel=1e-4)
    assert abs(shown - functional.cross_entropy(raw, labels).item()) > 0.05


def test_margins_of_the_dynamics_are_those_of_the_capped_model(run):
    m = run.folder.dynamics(run.folder.epochs()[-1]).margin
    assert np.nanmax(m) <= np.log(0.6 / 0.4) + 1e-4
    assert np.nanmax(m) > np.log(0.5 / 0.5)


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exports_contain_the_cap(run, tmp_path, format):
    path = tmp_path / f"network.{format}"
    export(run, path, format=format)
    x = 50 * torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = run.load_model()(x).detach()
    assert expected.softmax(1).max() > 0.5
    if format == "torch":
        found = torch.export.load(path).module()(x).detach()
    else:
        session = import_extra("onnxruntime", extra="export").InferenceSession(str(path))
        found = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_network_with_a_cap_is_copied_and_stored(run):
    network = run.load_model()
    inputs = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(other(inputs), network(inputs))


def test_the_description_names_the_cap(run):
    assert json.loads(json.dumps(describe(run)))["output"] == {"cap": 0.6}
