"""Recipes of the pages for other libraries, with the real packages, and the notebooks."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

import imae

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def needs(package):
    is_missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(is_missing, reason=f"needs {package}")


@pytest.fixture
def iris():
    rows, labels = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(rows).astype(np.float32), labels


@needs("skorch")
def test_skorch_gives_the_probabilities_that_the_loss_saw(iris):
    import skorch

    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(
        nn.Linear(4, 3),
        criterion=imae.IMAELoss,
        criterion__T=8.0,
        criterion__cap=0.75,
        predict_nonlinearity=lambda logits: imae.cap_logits(logits, 0.75).softmax(1),
        max_epochs=30,
        lr=0.1,
        train_split=None,
        verbose=0,
    )
    net.fit(*iris)
    probabilities = net.predict_proba(iris[0])
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert probabilities.max() <= 0.7501
    assert net.score(*iris) > 0.6


@needs("imblearn")
def test_the_auditor_is_a_step_of_imbalanced_learns_pipeline(iris):
    from imblearn.pipeline import make_pipeline

    from imae.integrations.sklearn import LabelAuditor

    rows, labels = iris
    given = labels.copy()
    given[:5] = 2
    model = make_pipeline(StandardScaler(), LabelAuditor(random_state=0), LogisticRegression())
    model.fit(rows, given)
    assert 0 not in model[1].sample_indices_
    assert model.predict(rows).shape == (150,)
    assert (model.predict(rows[:5]) == 0).all()


def test_a_plain_loop(iris):
    rows, labels = (torch.from_numpy(each) for each in iris)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), imae.CappedLogits(0.75))
    criterion = imae.IMAELoss(T="auto", cap=0.75, normalize="chance")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(100):
        optimizer.zero_grad()
        criterion(model(rows), labels).backward()
        optimizer.step()
    assert (model(rows).argmax(1) == labels).double().mean() > 0.8


@needs("nbclient")
@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=str)
def test_the_notebooks_run(path, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    assert path.stat().st_size < 100_000
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()


def test_the_example_of_a_language_model_learns(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import language_model

    monkeypatch.setattr(language_model, "STEPS", 3)
    for curve in language_model.LOSSES.values():
        plain, _ = language_model.right_answers(curve, fused=False)
        fused, _ = language_model.right_answers(curve, fused=True)
        assert 0 <= plain <= 1
        assert fused == pytest.approx(plain, abs=0.05)
    sys.modules.pop("language_model")
