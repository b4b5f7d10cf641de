"""What importing the library and asking for help load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import imae

CORE = ("imae", "imae.curves", "imae.losses", "imae.noise", "imae.models", "imae.data")
OPTIONAL = (
    "matplotlib",
    "PIL",
    "sklearn",
    "pyarrow",
    "typer",
    "rich",
    "safetensors",
    "scipy",
    "pydantic",
    "jinja2",
)


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in result.stdout.split()}


# One process for all that needs torch, whose import takes longest: each line that is printed is
# what was loaded at that moment, or the draws of the generators.
CORE_PROGRAM = f"""
import json, random, sys
import torch, numpy
def loaded():
    print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}})))
def seed():
    torch.manual_seed(7); random.seed(7); numpy.random.seed(7)
def draw():
    print(json.dumps([torch.rand(1).item(), random.random(), numpy.random.rand()]))
loaded()
seed()
import {", ".join(CORE)}
draw()
seed()
draw()
for module in ({", ".join(CORE)}):
    for name in dir(module):
        getattr(module, name)
loaded()
import PIL.Image
loaded()
"""


@pytest.fixture(scope="module")
def core() -> list[list[str]]:
    result = subprocess.run(
        [sys.executable, "-c", CORE_PROGRAM], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_core_loads_no_optional_dependency(core):
    by_torch, _, _, by_core, _ = map(set, core)
    assert "imae" in by_core - by_torch
    assert (by_core - by_torch) & set(OPTIONAL) == set()


def test_that_check_can_fail(core):
    by_torch, _, _, _, by_images = map(set, core)
    assert (by_images - by_torch) & set(OPTIONAL) == {"PIL"}


def test_importing_leaves_the_global_generators_alone(core):
    _, after_import, at_once, _, _ = core
    assert after_import == at_once


@pytest.mark.parametrize("name", ["imae", "imae.report", "imae.records", "imae.cli.app"])
def test_what_reads_runs_loads_no_torch(name):
    assert not loaded_by(f"import {name}") & {"torch", "pydantic", "sklearn", "matplotlib"}


def test_an_unknown_name_is_an_attribute_error():
    # The program above asks a fresh process for every known one.
    with pytest.raises(AttributeError, match="module 'imae' has no attribute 'nonsense'"):
        imae.nonsense  # noqa: B018


# Blocks a package as if it were not installed, reads a run, writes a report, prints help.
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from imae.cli.app import main
from imae.report import read_runs, write_report
record, = read_runs([sys.argv[2]])
assert record.history
write_report([record], sys.argv[3])
commands = [["--help"], ["--version"]]
if sys.argv[1] != "pydantic":  # which typer needs for the options of a command
    commands += [["train", "-h"], ["data", "-h"], ["report", sys.argv[2], "--out", sys.argv[4]]]
for arguments in commands:
    assert main(arguments) == 0, arguments
"""


def run_without(package, folder, program=WITHOUT):
    run = Path(__file__).parents[1] / "results" / "demo" / "runs" / "gce-seed123"
    command = [sys.executable, "-c", program, package, str(run)]
    command += [str(folder / name) for name in ("page.html", "other.html")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["torch", "pydantic"])
def test_runs_are_read_and_reported_without(package, tmp_path):
    done = run_without(package, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("package", "needing"), [("torch", "imae.losses.margin"), ("pydantic", "imae.train.config")]
)
def test_that_the_block_can_fail(package, needing, tmp_path):
    block, _, _ = WITHOUT.partition("from imae")
    done = run_without(package, tmp_path, f"{block}import {needing}\n")
    assert done.returncode == 1
    assert f"import of {package} halted" in done.stderr


COMPLETION = {"_IMAE_COMPLETE": "complete_bash", "COMP_WORDS": "imae tr", "COMP_CWORD": "1"}


@pytest.mark.parametrize(
    ("arguments", "environment", "shown"),
    [(["--help"], {}, "reproduce"), (["--version"], {}, "0."), ([], COMPLETION, "train")],
)
def test_help_version_and_completion_load_no_more_than_they_need(arguments, environment, shown):
    """benchmarks/house.py measures the time; this holds what decides it."""
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        "from imae.cli.app import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    assert shown in done.stdout
    loaded = done.stderr.split()
    assert not {"torch", "numpy", "matplotlib", "sklearn"}.intersection(loaded)
    assert 0 < sum(name.split(".")[0] == "imae" for name in loaded) <= 10
