"""README, start pages and tutorials do what they say: their code and their commands run."""

import doctest
import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from imae.audit import Audit
from imae.audit.decisions import Decision, write_decisions
from imae.cli.app import main
from imae.models import Network
from imae.records import RunFolder
from imae.train import preparation, setup

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
STARTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
FLAGS = doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """Arguments of the `$ imae ...` lines of a block; what is no such line is output."""
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    whole = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(each, comments=True)[1:] for each in whole if each.startswith("imae ")]


def run_command(arguments: list[str]) -> int:
    """The command's exit code; where it would wait for a person, what the person does."""
    if arguments[:2] != ["audit", "serve"]:
        return main(arguments)
    run = Path(arguments[2])
    decided = {0: Decision("keep", by="person")}
    write_decisions(Audit.load(RunFolder(run)), decided, run / "audit" / "decisions.csv")
    return 0


def words(text: str) -> set[str]:
    """Words of an output, without numbers, paths and what stands for more of the same."""
    without_paths = re.sub(r"\S*/\S*", " ", text)
    return set(re.findall(r"[A-Za-z_]{2,}", without_paths))


def run_page(page: Path, *, shows_output: bool = False) -> int:
    """Runs the blocks of a page in their order, here; the number of commands and examples.

    Args:
        page: The page.
        shows_output: Whether every word of the output that the page shows must be printed too.
            Numbers are not compared: their last digits differ between machines.
    """
    found, names = 0, {}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS)
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "python":
            test = parser.get_doctest(block, names, page.name, str(page), 0)
            outcome = runner.run(test, clear_globs=False)
            names = test.globs
            assert outcome.failed == 0, f"{page.name}: see the output"
            found += outcome.attempted
        else:
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(printed):
                for arguments in commands(block):
                    assert run_command(arguments) == 0, f"{page.name}: imae {shlex.join(arguments)}"
                    found += 1
            lines = [line for line in block.splitlines() if not line.startswith("$ ")]
            shown = words("\n".join(lines)) if shows_output else set()
            assert shown <= words(printed.getvalue()), f"{page.name}: other words are printed"
    return found


@pytest.fixture
def here(tmp_path, monkeypatch, quick_figures):  # noqa: ARG001
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Colours(Network):
    """In place of a pretrained network: the mean colour of each quarter of the image."""

    @property
    def classifier(self):
        raise NotImplementedError

    def features(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


@pytest.fixture
def own_data(here, monkeypatch):
    """The folders and files that the pages speak of, and nothing large to train."""
    monkeypatch.setattr(setup, "DEFAULT_EPOCHS", 3)
    monkeypatch.setattr(preparation, "build", lambda *_, **__: Colours())
    monkeypatch.setattr(preparation, "load_weights", lambda *_: None)
    monkeypatch.setattr(preparation, "pretrained_weights", Path)
    monkeypatch.setattr(preparation, "data_root", lambda: here)
    draw = np.random.Generator(np.random.PCG64(1))
    for number in range(60):
        shade = draw.integers(0, 120, (24, 24, 3)) + 120 * (np.arange(3) == number % 3)
        image = Image.fromarray(shade.astype(np.uint8))
        for folder in ("my_photos", "new_photos"):
            path = here / folder / "abc"[number % 3] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    words = ("good fine great", "bad poor awful", "so so middling")
    tables = {
        "my_table.csv": ["x,y_axis,label", *(f"{n % 3},{n % 7},{'abc'[n % 3]}" for n in range(60))],
        "new_rows.csv": ["x,y_axis", "1,2", "0,1"],
        "my_texts.csv": ["text,label", *(f"{words[n % 3]},{'abc'[n % 3]}" for n in range(60))],
        "new_texts.csv": ["text", "good great", "awful"],
    }
    for name, rows in tables.items():
        (here / name).write_text("\n".join(rows) + "\n")
    return here


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem == "compare" else ())
        for page in TUTORIALS
    ],
)
def test_every_step_of_a_tutorial_runs(page):
    assert run_page(page, shows_output=True) > 5


@pytest.mark.usefixtures("own_data")
@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.stem)
def test_the_commands_of_readme_and_start_pages_run(page):
    assert run_page(page) > 1


def test_a_failing_step_is_noticed(here):
    page = here / "page.md"
    page.write_text("```console\n$ imae train nowhere.csv\n```\n")
    with pytest.raises(AssertionError, match="imae train nowhere"):
        run_page(page)
    page.write_text("```console\n$ imae list noise\n┃ kind of music ┃ 4 ┃\n```\n")
    with pytest.raises(AssertionError, match="other words are printed"):
        run_page(page, shows_output=True)
    page.write_text("```python\n>>> 1 + 1\n3\n\n```\n")
    with pytest.raises(AssertionError, match="see the output"):
        run_page(page)
