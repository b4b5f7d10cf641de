"""The documentation builds, leaves no public name out, and its commands exist."""

import functools
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imae.cli.app import COMMANDS, load_command
from imae.data.sources import SOURCES
from imae.methods import METHODS
from imae.models import MODELS
from imae.noise import KINDS
from imae.recipes import RECIPES
from imae.records.measures import COLUMNS

ROOT = Path(__file__).parents[1]
WIDEST_CODE = 96  # characters that the site shows at 1280 pixels, and a terminal of 100 columns
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PUBLIC = (
    "imae",
    "imae.curves",
    "imae.losses",
    "imae.noise",
    "imae.data",
    "imae.models",
    "imae.methods",
    "imae.train",
    "imae.report",
    "imae.audit",
    "imae.recipes",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # mkdocs prints its warnings: --strict turns each into a failure.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a line for every request."""

    def log_message(self, *_: object) -> None:
        pass


def public_names(module_name: str) -> list[str]:
    module = importlib.import_module(module_name)
    return [
        name
        for name in dir(module)
        if not name.startswith("_")
        and name not in ("TYPE_CHECKING", "lazy_exports")
        and not inspect.ismodule(getattr(module, name))
    ]


@pytest.mark.slow  # the site is built
def test_every_public_name_has_its_place_in_the_site(site):
    anchors = set()
    for page in site.rglob("*.html"):
        anchors |= set(re.findall(r'id="imae\.([\w.]+)"', page.read_text()))
    documented = {anchor.split(".")[-1] for anchor in anchors}
    # Modules of curves are made from the catalog, so that no source has their documentation.
    documented |= set(re.findall(r"`(\w+Loss)`", (ROOT / "docs" / "losses.md").read_text()))
    missing = {
        f"{module}.{name}"
        for module in PUBLIC
        for name in public_names(module)
        if name not in documented
    }
    assert sorted(missing) == []


@pytest.mark.slow  # the site is built
def test_prompts_and_output_are_marked_and_so_not_copied(site):
    assert "[data-md-copying] .gp" in (site / "site.css").read_text()
    page = (site / "start" / "own_loop" / "index.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
    assert '<span class="go">True</span>' in page
    page = (site / "start" / "photos" / "index.html").read_text()
    assert '<span class="gp">$ </span>imae<span class="w"> </span>audit' in page


@pytest.mark.slow  # the site is built
def test_the_site_asks_no_other_host_for_anything(site):
    page = (site / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page)
    assert loaded == []


@pytest.mark.slow  # the site is built
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
def test_pages_of_the_site_have_no_serious_finding(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    handler = functools.partial(QuietHandler, directory=str(site))
    found = {}
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        playwright.sync_playwright() as p,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = p.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name in ("", "which_method/", "tutorials/compare/", "report/"):
            for width, scheme in ((1280, "light"), (390, "dark")):
                size = {"width": width, "height": 900}
                page = chromium.new_page(viewport=size, color_scheme=scheme)
                page.goto(f"http://127.0.0.1:{server.server_port}/{name}")
                page.wait_for_selector('.md-search[aria-label="Search"]', state="attached")
                serious = [
                    each["id"]
                    for each in axe.run(page).response["violations"]
                    if each["impact"] in ("serious", "critical")
                ]
                if serious:
                    found[name, width] = serious
                page.close()
        chromium.close()
        server.shutdown()
    assert found == {}


def test_the_two_commands_of_the_readme_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_ci_calls_the_readmes_test_command():
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_command_of_the_program_is_documented():
    pages = "".join(path.read_text() for path in PAGES)
    assert [name for name in COMMANDS if f"imae {name}" not in pages] == []


def options_of(words: list[str]) -> set[str]:
    """The options of a command, or of the part of it that these words name."""
    command = load_command(words[0])
    parts = getattr(command, "commands", {})
    if parts:
        command = parts.get(words[1] if len(words) > 1 else "", parts.get("run", command))
    return {"--help", *(option for each in command.params for option in each.opts)}


def test_every_command_line_of_the_pages_uses_options_that_exist():
    written = set()
    for page in [ROOT / "README.md", *PAGES]:
        text = page.read_text()
        blocks = re.findall(
            r"^```(?:sh|bash|console|text)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL
        )
        lines = re.sub(r"\\\n\s*", "", "\n".join(blocks))  # a command goes on after a backslash
        written |= set(re.findall(r"^(?:\$ )?imae ([^#&|\n]+)", lines, re.MULTILINE))
        written |= set(re.findall(r"`imae ([^`\n]+)`", text))
    unknown = {
        f"imae {line}"
        for line in written
        if line.split()[0] in COMMANDS
        for option in re.findall(r"(?<!\S)--[a-z][\w-]*", line)
        if option not in options_of(line.split())
    }
    assert len(written) > 100
    assert sorted(unknown) == []


def long_code_lines(text: str) -> list[str]:
    blocks = re.findall(r"^```.*?^```|^    [^\n]*", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if len(line) > WIDEST_CODE]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem
)
def test_code_is_read_without_scrolling(page):
    assert long_code_lines(page.read_text()) == []


def test_a_long_line_of_code_is_noticed():
    assert long_code_lines(f"```sh\nimae {'a' * WIDEST_CODE}\n```\n") != []
    assert long_code_lines(f"The formula\n\n    {'a' * WIDEST_CODE}\n\nis long.\n") != []
    assert long_code_lines(f"text\n{'a' * WIDEST_CODE}b\n") == []


def test_every_column_of_a_report_is_explained():
    page = (ROOT / "docs" / "report.md").read_text()
    assert [each.heading for each in COLUMNS if each.measure.is_summary] == re.findall(
        r"^\| ((?:Best|Final|Chosen|Held|Wrong|Right|Hybrid)[^|]*?) \|", page, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("page", "catalog"),
    [
        ("models", MODELS),
        ("datasets", SOURCES),
        ("methods", METHODS),
        ("noise", KINDS),
        ("reproduce", RECIPES),
    ],
)
def test_everything_with_a_name_is_on_its_page(page, catalog):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert [name for name in catalog.names() if f"`{name}`" not in text] == []


def test_every_python_example_of_the_pages_is_run():
    for page in [ROOT / "README.md", *PAGES]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            assert block.startswith(">>> "), f"{page.name}: not a doctest: {block[:60]!r}"
    # A program with a title needs a package that is not installed here: a slow test runs it.
    tests = (ROOT / "tests" / "integrations" / "test_recipes.py").read_text()
    titles = [title for page in PAGES for title in re.findall(r"```py (.*)", page.read_text())]
    assert len(titles) == 3
    for title in titles:
        name = title.removeprefix("title=").strip('"')
        assert re.search(f"""recipe\\(["']{name}["']\\)""", tests), title


def test_the_evidence_of_every_claim_is_in_the_repository():
    text = (ROOT / "docs" / "claims.md").read_text()
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 5
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(), name
    folders = set(re.findall(r"`(results/[\w./-]+)`", text))
    assert len(folders) > 3
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []
    recipes = set(re.findall(r"`imae reproduce (\w+)", text))
    assert recipes <= set(RECIPES.names())


def test_every_claim_has_a_status():
    text = (ROOT / "docs" / "claims.md").read_text()
    rows = re.findall(r"^\| (?!claim|plan|---)(.+?) \| (.+?) \| .+ \|$", text, re.MULTILINE)
    assert len(rows) > 30
    for claim, status in rows:
        assert re.search(r"confirmed|refuted|open|in part|a definition", status), claim


def test_the_badges_are_true():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    figures = ROOT / "docs" / "figures"

    def shown(name: str) -> str:
        return (figures / f"badge-{name}.svg").read_text()

    assert f">{project['project']['license']}</text>" in shown("licence")
    lowest = project["project"]["requires-python"].removeprefix(">=")
    assert f">{lowest}+</text>" in shown("python")
    assert project["tool"]["mypy"]["strict"] is True
    assert ">mypy strict</text>" in shown("types")
    assert (ROOT / "src" / "imae" / "py.typed").exists()


def test_every_picture_is_there_in_light_and_dark():
    names = {path.name for path in (ROOT / "docs" / "figures").glob("*.png")}
    assert {name.replace("-dark.", "-light.") for name in names if "-dark." in name} == {
        name for name in names if "-dark." not in name
    }
    for page in PAGES:
        shown = re.findall(r"\(((?:\.\./)?figures/[^)]+\.png[^)]*)\)", page.read_text())
        light = [each for each in shown if each.endswith("-light.png#only-light")]
        dark = [each for each in shown if each.endswith("-dark.png#only-dark")]
        assert len(light) == len(dark) == len(shown) / 2, page.name


def test_the_home_page_leads_to_every_page():
    linked = set(re.findall(r"\]\(([^)#:]+\.md)", (ROOT / "docs" / "index.md").read_text()))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES}
    assert {page for page in pages - linked if not page.startswith("integrations/")} == {"index.md"}
    assert "integrations/index.md" in linked


def test_code_in_tables_shows_no_backslash():
    # The site shows the backslash of an escaped bar in code, where GitHub does not.
    assert [
        page.name for page in PAGES if re.search(r"^\|.*`[^`]*\\\|", page.read_text(), re.M)
    ] == []


def test_anchors_of_links_are_headings():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for path, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            names = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
            assert anchor in names, f"{page.name}: {path}#{anchor}"


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    prose = re.sub(r"```.*?```|<[^>]+>", "", text, flags=re.DOTALL)
    prose = re.sub(r"^\|.*$|\]\([^)]*\)", "", prose, flags=re.MULTILINE)
    assert 200 < len(prose.split()) < 500
    assert len(text.split()) <= 780  # with its tables and examples


def table_cells(text: str, first: str) -> list[list[str]]:
    """The table whose first cell this is, a list of cells for each row, without its rule."""
    lines = text[text.index(first) :].split("\n\n")[0].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if set("".join(row)) != set("-")]


def test_the_table_of_the_readme_is_that_of_the_results():
    readme = table_cells((ROOT / "README.md").read_text(), "| | CIFAR-10 clean")
    study = (ROOT / "results" / "study-features" / "study.md").read_text()
    header, *rows = table_cells(study, "| Setting | CCE | MAE")
    measured = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    recommended = next(name for name in header if name.startswith("IMAE, capped"))
    settings = {
        "40% symmetric": "CIFAR-10 symmetric 40%",
        "80% symmetric": "CIFAR-10 symmetric 80%",
        "40% asymmetric": "CIFAR-10 asymmetric 40%",
        "10N worst (human)": "CIFAR-10N worst",
        "CIFAR-100 40%": "CIFAR-100 symmetric 40%",
        "100N (human)": "CIFAR-100N",
    }
    methods = {
        "label smoothing": "LS",
        "bootstrapping (hard)": "Boot-hard",
        "imae_capped**, the default": recommended,
    }
    for name, *numbers in readme[1:]:
        for heading, number in zip(readme[0][1:], numbers, strict=True):
            setting = measured[settings.get(heading, heading)]
            assert number == setting[methods.get(name, name)].split()[0], (name, heading)


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)
    assert len(linked) > 10
    assert [path for pair in linked for path in pair if path and not (ROOT / path).exists()] == []
