"""Importing the library needs torch and numpy alone, and does nothing else."""

import subprocess
import sys

import pytest

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


@pytest.fixture(scope="module")
def loaded_by_torch() -> set[str]:
    return loaded_by("import torch, numpy")


def test_the_core_loads_no_optional_dependency(loaded_by_torch):
    loaded = loaded_by("\n".join(f"import {name}" for name in CORE))
    assert loaded & set(OPTIONAL) - loaded_by_torch == set()


def test_that_check_can_fail():
    assert "PIL" in loaded_by("import imae\nimport PIL.Image")


def test_importing_leaves_the_global_generators_alone():
    program = (
        "import torch, numpy, random; torch.manual_seed(7); random.seed(7); numpy.random.seed(7)\n"
        "import imae, imae.models, imae.data\n"
        "a = torch.rand(1).item(), random.random(), numpy.random.rand()\n"
        "torch.manual_seed(7); random.seed(7); numpy.random.seed(7)\n"
        "assert a == (torch.rand(1).item(), random.random(), numpy.random.rand())"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
