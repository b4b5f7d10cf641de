"""The wheel: built, checked, installed in clean environments and used there."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def run(*command, **options):
    # What is installed is tried, not a checkout that PYTHONPATH names.
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"env": without, "capture_output": True, "text": True, **options}
    done = subprocess.run([str(each) for each in command], check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean(tmp_path_factory, wheel):
    """An environment with the wheel, torch and numpy."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return python


def test_metadata_and_contents(dist, wheel):
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    # W009: one package; tests and documentation are in the source distribution only.
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    assert {path.suffix for path in dist.iterdir()} == {".whl", ".gz"}


def test_the_source_distribution_is_the_repository(dist):
    if not (ROOT / ".git").exists():
        pytest.skip("not in a checkout")
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames()}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = {name for name in run(*listed, cwd=ROOT).splitlines() if (ROOT / name).exists()}
    assert packed == {*tracked, "PKG-INFO"}


def test_tests_run_where_the_source_distribution_is_unpacked(dist, tmp_path):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    # These read files of the repository: pages, results, benchmarks.
    files = ["tests/test_layout.py", "tests/test_docs.py", "tests/cli/test_demo.py"]
    files += ["tests/integrations/test_boosting.py", "src/imae/curves"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    options = ["-q", "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *options, *files, cwd=root, env=environment)


def test_the_version_is_written_in_one_place(wheel):
    written = re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert len(written) == 1
    assert wheel.name.split("-")[1] == written[0] == importlib.metadata.version("imae")


USE_LOSSES = """
import torch, imae
logits = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
for criterion in (imae.IMAELoss(T=8.0), imae.IMAELoss(T="auto", cap=0.75, normalize="half")):
    logits.grad = None
    criterion(logits, torch.tensor([1])).backward()
    assert logits.grad.isfinite().all() and logits.grad.any()
assert imae.curves.GCE(q=0.5).weight(torch.tensor([0.5])) > 0
"""
NOTHING_ELSE = """
import sys
assert imae.__file__.startswith(sys.prefix), imae.__file__
try:
    import imae.integrations.sklearn
except imae.MissingExtraError as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("scikit-learn should not be here")
"""


def test_the_losses_need_torch_and_numpy_only(clean, tmp_path):
    run(clean, "-c", USE_LOSSES + NOTHING_ELSE, cwd=tmp_path)


def test_the_bill_of_materials_names_what_the_wheel_brings(clean, tmp_path):
    out = tmp_path / "sbom.json"
    run(sys.executable, "-m", "cyclonedx_py", "environment", "-o", out, clean)
    bill = json.loads(out.read_text())
    found = {each["name"]: each for each in bill["components"]}
    assert {"imae", "torch", "numpy"} <= set(found)
    assert all(each["version"] and each.get("licenses") for each in found.values())
    direct = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    names = {each["bom-ref"]: name for name, each in found.items()}
    assert {names[ref] for ref in direct[found["imae"]["bom-ref"]]} >= {"torch", "numpy"}


def interpreter(minor):
    """A Python of this version in the path or of pyenv; its shims may be of none."""
    named = shutil.which(f"python3.{minor}")
    found = Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")
    check = f"import ensurepip, venv, sys; assert sys.version_info[:2] == (3, {minor})"
    for python in [*([named] if named else []), *sorted(found)]:
        if subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"there is no Python 3.{minor} in the path or of pyenv")


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_other_versions_of_python(minor, wheel, tmp_path):
    base, python = interpreter(minor), tmp_path / "env" / "bin" / "python"
    test = [base, "-c", "import torch, numpy"]
    has_torch = subprocess.run(test, capture_output=True, check=False).returncode == 0
    run(base, "-m", "venv", *["--system-site-packages"] * has_torch, tmp_path / "env")
    install = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--retries=0"]
    if not has_torch:
        # Not of constraints.txt, which has versions for Python 3.11; and never the build of a GPU,
        # whose packages are gigabytes.
        (torch,) = re.findall("^torch==.+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        build = f"{torch}+cpu" if sys.platform == "linux" else torch
        index = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
        command = [str(each) for each in [*install, *index, build, "numpy"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "No matching distribution found for torch" in done.stderr:
            pytest.skip(f"pip finds no {build} for Python 3.{minor}")
        assert done.returncode == 0, done.stderr
    run(*install, "--no-deps", wheel)
    located = "assert imae.__file__.startswith(sys.prefix), imae.__file__\n"
    version = "print(sys.version_info[1], torch.__version__)"
    said = run(
        python, "-W", "error", "-c", f"import sys\n{USE_LOSSES}{located}{version}", cwd=tmp_path
    )
    assert said.split()[0] == str(minor)


def test_importing_adds_little_to_torch(clean, tmp_path):
    seconds = {"import torch": [], "import torch, imae; imae.IMAELoss": []}
    for _ in range(3):
        for statement, found in seconds.items():
            start = time.perf_counter()
            run(clean, "-c", statement, cwd=tmp_path)
            found.append(time.perf_counter() - start)
    plain, ours = (min(found) for found in seconds.values())
    assert ours - plain < 0.3


ROWS = """
import numpy
from imae.train import train
labels = numpy.arange(60) % 3
rows = numpy.eye(3, dtype="float32")[labels]
def trained(**settings):
    return train({"train": {"epochs": 2}, "out": "run", **settings}, data=(rows, labels))
"""
DEMO_RUN = ROOT / "results" / "demo" / "runs" / "cce-seed123"
# What each extra is for, used where only it is installed (and those named with it).
EXTRAS = {
    "cli": "from imae.cli.app import main; assert main(['list', 'losses']) == 0",
    "plot": (
        "import numpy; from imae.report.figures import save_lines\n"
        "x = numpy.arange(3.0)\n"
        "labels = {'title': 't', 'x_label': 'x', 'y_label': 'y'}\n"
        "assert save_lines('figures', 'line', x, {'a': x}, **labels)[0].stat().st_size > 0"
    ),
    "data": (
        "from sklearn.datasets import load_iris; from imae.integrations.sklearn import *\n"
        "X, y = load_iris(return_X_y=True)\n"
        "assert IMAEClassifier(random_state=0).fit(X, y).score(X, y) > 0.8\n"
        "import imae; assert len(imae.data.load('digits').train) > 1000"
    ),
    "train": f"{ROWS}assert trained().result['status'] == 'finished'",
    "report": (
        "from imae.report import read_runs, write_report\n"
        f"write_report(read_runs([{str(DEMO_RUN)!r}]), 'page.html')"
    ),
    "tune": "from imae.tune import tune; import optuna, sqlalchemy",
    "export,train": (
        f"{ROWS}from imae.train.export import export\nexport(trained(), 'network.onnx')\n"
        "import onnx; onnx.checker.check_model('network.onnx')"
    ),
    "log,train": f"{ROWS}assert list(trained(log=['tensorboard']).path.glob('tensorboard/*'))",
    "texts": "import tokenizers, wordllama; from imae.data.extract import *",
    "boosting": (
        "from imae.integrations.boosting import Objective; import xgboost, lightgbm, numpy\n"
        "X, y = numpy.eye(3).repeat(20, 0), numpy.arange(3).repeat(20)\n"
        "for model in (xgboost.XGBClassifier, lightgbm.LGBMClassifier):\n"
        "    objective = Objective('imae')\n"
        "    fitted = model(objective=objective, n_estimators=3).fit(X, y)\n"
        "    assert objective.predict_proba(fitted, X).shape == (60, 3)"
    ),
    "lightning": "from imae.integrations.lightning import AuditCallback; AuditCallback('run')",
    "transformers": (
        "from imae.integrations.transformers import AuditCallback, loss_function\n"
        "loss_function('imae'), AuditCallback('run', __import__('numpy').zeros(3, int))"
    ),
    "jax": "from imae.integrations.jax import value; value('imae', 0.0)",
    "cluster": "import ray",
    "services": "import wandb, mlflow",
    "all": (
        "from imae.train import train; from imae.train.predict import predict\n"
        "run = train({'train': {'epochs': 2}, 'out': 'run'}, data='digits', loss='imae_capped')\n"
        "assert len(predict(run, 'digits')) == 355"
    ),
}
FOR_DEVELOPERS = {"dev", "docs", "integrations", "notebooks", "release"}


def test_every_extra_is_tried(wheel):
    (metadata,) = importlib.metadata.Distribution.discover(name="imae", path=[str(wheel)])
    assert set(metadata.metadata.get_all("Provides-Extra")) == FOR_DEVELOPERS | {
        extra.split(",")[0] for extra in EXTRAS
    }


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_brings_what_it_promises(extra, clean, wheel, tmp_path):
    # On top of torch and numpy, which stay where they are, and of no other extra.
    run(sys.executable, "-m", "venv", tmp_path / "env")
    place = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = tmp_path / "env" / "bin" / "python"
    below = run(clean, "-c", place).strip()
    Path(run(python, "-c", place).strip(), "below.pth").write_text(below)
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, f"{wheel}[{extra}]")
    run(python, "-W", "ignore", "-c", EXTRAS[extra], cwd=tmp_path)


# What the oldest version of each library needs beside it, and the libraries themselves.
OLDEST = {
    "transformers": ["transformers", "accelerate", "huggingface-hub==0.26.5", "tokenizers==0.21.0"],
    "lightning": ["pytorch-lightning", "lightning-fabric"],
    "jax": ["jax", "jaxlib==0.4.30"],
    "boosting": ["xgboost-cpu", "lightgbm", "scikit-learn"],
}


@pytest.mark.parametrize("name", OLDEST)
def test_the_oldest_versions_of_a_library_that_are_supported(name, tmp_path):
    bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    packages = [each if "==" in each else f"{each}=={bounds[each]}" for each in OLDEST[name]]
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path]
    run(sys.executable, *install, *packages)
    # LightGBM 4.0 warns about scikit-learn, and its folds need numpy 1.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::FutureWarning"]
    options += ["-k", "not each_fold_of_lightgbm"]
    tests = ["-m", "slow or not slow", f"tests/integrations/test_{name}.py"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
    run(sys.executable, "-m", "pytest", *options, *tests, cwd=ROOT, env=environment)


def vulnerabilities(report):
    """What pip-audit has found, of how many packages, and the reasons why it skipped others."""
    packages = json.loads(report)["dependencies"]
    found = {each["name"]: [one["id"] for one in each.get("vulns", ())] for each in packages}
    skipped = {each["name"]: each["skip_reason"] for each in packages if "skip_reason" in each}
    return {name: ids for name, ids in found.items() if ids}, len(packages), skipped


def check_vulnerabilities(report):
    found, number, skipped = vulnerabilities(report)
    assert not found
    summary = f"{len(skipped)} of {number} packages could not be audited"
    print(f"{summary}: {skipped}")
    if len(skipped) == number:
        pytest.skip(summary)


def test_packages_that_could_not_be_audited_are_not_called_safe():
    safe = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
    unsafe = {"name": "c", "version": "1", "vulns": [{"id": "PYSEC-1"}]}
    check_vulnerabilities(json.dumps({"dependencies": [safe, skipped]}))
    with pytest.raises(pytest.skip.Exception, match="1 of 1 packages could not be audited"):
        check_vulnerabilities(json.dumps({"dependencies": [skipped]}))
    with pytest.raises(AssertionError, match="PYSEC-1"):
        check_vulnerabilities(json.dumps({"dependencies": [unsafe, skipped]}))


def test_no_dependency_has_a_known_vulnerability(tmp_path):
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    listed = tmp_path / "pinned.txt"
    listed.write_text("\n".join(line.split("+")[0] for line in pinned if "==" in line))
    options = ["--no-deps", "--disable-pip", "--format", "json", "-r", str(listed)]
    command = [sys.executable, "-m", "pip_audit", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ConnectionError" in done.stderr or "ServiceError" in done.stderr:
        pytest.skip("the service of advisories cannot be reached")
    assert done.stdout, done.stderr
    check_vulnerabilities(done.stdout)
