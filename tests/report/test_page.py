import html
import itertools
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import imae.report
from imae.errors import DataError
from imae.report.page import render, write_report
from imae.report.read import read_run

TEMPLATES = Path(imae.report.__file__).parent / "templates"
PAYLOADS = (Path(__file__).parent / "payloads.txt").read_text("utf-8").splitlines()
CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Set up before anything of the page runs: what it would try and be refused is counted.
WATCH = """
window.refused = [];
addEventListener("securitypolicyviolation", event => refused.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Opened:
    """A page in the browser and all that it did."""

    def __init__(self, browser, path, **options):
        self.page = browser.new_page(**options)
        self.page.add_init_script(WATCH)
        self.dialogs, self.requests, self.failures, self.errors = [], [], [], []
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.failures.append(request.failure))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.address = path.as_uri()
        self.page.goto(self.address)

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def did(self):
        """Dialogs, scripts that ran, requests beyond the page, refusals and errors."""
        hit = self.page.evaluate("window.hit || 0")
        refused = self.page.evaluate("window.refused")
        others = [url for url in self.requests if url != self.address]
        return self.dialogs, hit, others, refused, self.errors


NOTHING = ([], 0, [], [], [])


@pytest.fixture
def open_page(browser):
    opened = []

    def open_(path, **options):
        opened.append(Opened(browser, path, **options))
        return opened[-1]

    yield open_
    for each in opened:
        each.page.close()


@pytest.fixture
def compared(make_run):
    runs = [
        make_run("cce-1", method="cce", memory=0.9, seed=1),
        make_run("cce-2", method="cce", memory=0.9, seed=2),
        make_run("imae-1", method="imae", arguments={"T": 8.0}, memory=0.1, seed=1),
        make_run(
            "imae-2",
            method="imae",
            arguments={"T": 8.0},
            memory=0.1,
            seed=2,
            finished=False,
            progress={"status": "failed", "message": "the loss is not finite at step 120"},
        ),
    ]
    return [read_run(run) for run in runs]


def run_of_strings(make_run, name, text):
    """A small run in which every string that a user can choose is this text."""
    return make_run(
        name,
        method=text,
        arguments={text: text},
        data=text,
        noise=text,
        model=text,
        seed=1,
        finished=False,
        class_names=(text, text + "2"),
        row_ids=np.array([f"{text}{row}" for row in range(400)]),
        extra={"seed": text, text: {text: [text]}},
        environment={"python": text, text: text},
        progress={"status": "failed", "message": text},
    )


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.headings, self.texts = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_holds_every_part(compared):
    page = html.unescape(render(compared))
    for part in (
        "Best test\N{NO-BREAK SPACE}↑",  # no arrow stands on a line of its own
        "Wrong labels memorised\N{NO-BREAK SPACE}↓",
        "Accuracy during training",
        "Wrong labels memorised (lower is better)",
        "How sure the network is of the given labels",
        "Which rows training listened to",
        "How much of it went to wrong labels",
        "imae:T=8: 1 failed.",
        "failed: the loss is not finite at step 120",
        "train.learning_rate",
        "2.13.0",
        "Classes: zero, one, two, three.",
    ):
        assert part in page


def test_the_same_runs_give_the_same_bytes(compared, tmp_path):
    first = write_report(compared, tmp_path / "a.html")
    second = write_report(compared, tmp_path / "deep" / "b.html")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"<!DOCTYPE html>")


def test_several_settings_have_a_part_each(make_run):
    runs = [read_run(make_run("a")), read_run(make_run("b", noise="symmetric:0.8"))]
    elements = Elements(render(runs))
    assert elements.headings.count(2) == 3
    assert len(elements.ids) == len(set(elements.ids))


def test_runs_of_one_name_are_told_apart(make_run):
    runs = [read_run(make_run("one/run")), read_run(make_run("two/run", seed=2))]
    page = render(runs)
    assert all(str(run.folder) in page for run in runs)


@pytest.mark.parametrize("missing", ["labels.npz", "history.jsonl", "env.json", "dynamics"])
def test_a_run_that_has_not_written_all_is_shown(make_run, missing):
    folder = make_run(finished=False)
    path = folder / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "running" in render([read_run(folder)])


def test_unknown_truth_is_shown_as_unknown(make_run):
    rows = [{"step": 1, "test_accuracy": None, "validation_accuracy": 0.5, "noisy_accuracy": None}]
    page = render([read_run(make_run(truth=False, rows=rows))])
    assert "all rows (the truth is not known)" in page
    assert "How much of it went to wrong labels" not in page
    assert "Held-out given labels (higher is better)" in page
    assert "Best held-out given labels&nbsp;↑" in page
    assert "Final held-out given labels&nbsp;↑" in page
    for unknown in ("Final test&nbsp;", "Wrong labels memorised&nbsp;"):
        assert unknown not in page


def test_a_dash_is_explained_where_there_is_one(make_run):
    explained = "“-” is unknown"
    rows = [{"step": 40, "test_accuracy": 0.5, "validation_accuracy": 0.5}]
    runs = [read_run(make_run(method, method=method, rows=rows)) for method in ("cce", "gce")]
    assert explained not in render(runs)
    rows = [{"step": 40, "test_accuracy": 0.5, "validation_accuracy": None}]
    runs.append(read_run(make_run("mae", method="mae", rows=rows)))
    assert explained in render(runs)


@pytest.mark.parametrize(("held_out", "shown"), [(0.4, "66.0"), (None, None)])
def test_a_test_accuracy_is_chosen_by_held_out_rows_alone(make_run, held_out, shown):
    rows = [
        {"step": 1, "test_accuracy": 0.66, "validation_accuracy": held_out},
        {"step": 2, "test_accuracy": 0.5, "validation_accuracy": held_out},
    ]
    folder = make_run(rows=rows)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"best": rows[0]}))
    page = render([read_run(folder)])
    runs = page[page.index('id="runs"') :]
    headings = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', runs)
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", runs[runs.index("<tbody>") :])
    row = dict(zip(headings, cells, strict=False))
    assert row["Last test"] == "50.0"
    assert row.get("Chosen test") == shown  # a column without a number is not there
    assert ("“Chosen test” is" in runs) == (shown is not None)


def test_the_head_names_every_data_set_and_counts_methods_once(make_run):
    labels = {"data": {"name": "photos", "labels": "made/fixed.csv"}}
    runs = [
        read_run(make_run("a", data="tumours.csv", noise=None)),
        read_run(make_run("b", noise=None, extra=labels)),
        read_run(make_run("c")),
    ]
    page = render(runs)
    assert "<h1>tumours.csv, photos and digits: training" in page
    assert re.search(r"<title>imae report: tumours.csv, photos and digits\b", page)
    assert "3 runs of cce in 3 settings" in page
    headings = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert headings == [
        "tumours.csv, no noise added, small_cnn",
        "photos, labels from fixed.csv, small_cnn",
        "digits, noise symmetric:0.4, small_cnn",
        "Runs",
    ]
    many = [read_run(make_run(name, data=name)) for name in ("p", "q", "r", "s", "t")]
    assert "<h1>p, q, r and 2 more: training" in render(many)


def test_a_run_under_way_says_how_far_it_is(make_run):
    progress = {"status": "running", "step": 7, "total_steps": 90, "message": ""}
    assert "running: step 7 of 90" in render(
        [read_run(make_run(finished=False, progress=progress))]
    )


def test_labels_without_an_error_show_no_share_of_wrong_ones(make_run):
    folder = make_run()
    with np.load(folder / "labels.npz") as file:
        arrays = dict(file)
    np.savez(folder / "labels.npz", **arrays | {"clean": arrays["given"]})
    assert "How much of it went to wrong labels" not in render([read_run(folder)])


@pytest.mark.parametrize("name", ["labels.npz", "dynamics/epoch-00002.npz"])
def test_damaged_rows_are_one_line_and_no_page(make_run, tmp_path, name):
    run = read_run(make_run())
    (run.folder / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        write_report([run], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_long_values_and_many_classes_are_cut(make_run):
    names = tuple(f"class {number}" for number in range(40))
    run = read_run(make_run(class_names=names, extra={"note": "x" * 5000}))
    page = render([run])
    assert "class 23 and 16 more" in page
    assert "x" * 299 + "…" in page
    assert "x" * 300 not in page


def test_headings_go_down_one_level_at_a_time(compared):
    levels = Elements(render(compared)).headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_every_figure_has_words_and_every_reference_an_element(compared):
    elements = Elements(render(compared))
    assert len(elements.ids) == len(set(elements.ids))
    drawn = [attrs for tag, attrs in elements.tags if tag == "svg" and "role" in attrs]
    assert len(drawn) == 4 + 2 + 2 + 2  # the lone chart is drawn for wide screens too
    for name in ("aria-labelledby", "aria-describedby", "for"):
        for _, attrs in elements.tags:
            assert set((attrs.get(name) or "").split()) <= set(elements.ids)


def test_scrolling_boxes_can_be_reached_by_keyboard(compared):
    boxes = [
        attrs
        for tag, attrs in Elements(render(compared)).tags
        if tag == "div" and "scroll" in (attrs.get("class") or "").split()
    ]
    assert boxes
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def lint(template):
    """What a template must not hold: anything that could let a string become markup."""
    problems = re.findall(r"\|\s*safe\b|Markup|autoescape|xmlattr|urlize", template)
    # An image must pass the filter that lets nothing but embedded images through.
    images = re.sub(r'<img src="\{\{ [\w.]+\|image \}\}"', "<img", template)
    images = re.sub(r'<a href="\{\{ [\w.()]+\|local \}\}"', "<a", images)
    problems += re.findall(r"\b(?:href|src|srcset|style|on\w+|action)\s*=", images)
    problems += re.findall(r'[\w-]+=\{\{|[\w-]+=[^\s"\'>{]+(?=[\s>])', tags_of(template))
    for body in re.findall(r"<script[^>]*>(.*?)</script>", template, flags=re.DOTALL):
        if not re.fullmatch(r'\{% include "page\.js" %\}|\{\{ [\w.]+\|tojson \}\}', body):
            problems.append(body)
    for body in re.findall(r"<style[^>]*>(.*?)</style>", template, flags=re.DOTALL):
        if not re.fullmatch(r'\{% include "\w+\.css" %\}', body):
            problems.append(body)
    return problems


def tags_of(template):
    without = re.sub(r"\{%.*?%\}", "", template, flags=re.DOTALL)
    # Expressions inside quotes are what is allowed; they may hold quotes of the other kind.
    without = re.sub(r'"[^"<>]*\{\{.*?\}\}[^"<>]*"', '""', without)
    without = re.sub(r'"[^"<>]*"', '""', without)
    return " ".join(re.findall(r"<\w[^>]*>", without))


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_let_no_string_become_markup(template):
    assert lint(template.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "bad",
    [
        "{{ name|safe }}",
        "{{ name | safe }}",
        "{% autoescape false %}",
        '<a href="{{ name }}">',
        '<img src="{{ name }}">',
        '<img src="{{ name }}{{ name|image }}">',
        '<p style="color: {{ name }}">',
        '<p onclick="{{ name }}">',
        "<p class={{ name }}>",
        "<p class=name>",
        "<script>let name = {{ name|tojson }}</script>",
        "<script>{{ name }}</script>",
        "<style>{{ name }}</style>",
    ],
)
def test_the_lint_can_fail(bad):
    assert lint(bad) != []


@pytest.mark.parametrize("name", ["page.js", "page.css", "queries.css"])
def test_script_and_style_are_plain_text_for_the_template_engine(name):
    text = (TEMPLATES / name).read_text("utf-8")
    assert not re.search(r"\{\{|\{%|\{#|</", text)
    assert not re.search(r"https?:|url\(|@import|innerHTML|insertAdjacent|eval|fetch\(", text)


def test_the_policy_allows_one_script_and_one_style(compared):
    elements = Elements(render(compared))
    policy = next(
        attrs["content"]
        for tag, attrs in elements.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "*" not in policy


def test_no_element_names_an_address_or_a_style(compared):
    for _, attrs in Elements(render(compared)).tags:
        assert not {"href", "src", "style", "action", "onclick"} & set(attrs)


def test_there_are_enough_payloads():
    assert len(set(PAYLOADS)) >= 50


@pytest.fixture(scope="module")
def plain(run_maker, tmp_path_factory):
    make_run = run_maker(tmp_path_factory.mktemp("plain"))
    return Elements(render([read_run(run_of_strings(make_run, "run", "name"))]))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_adds_no_element(plain, make_run, payload):
    hostile = Elements(render([read_run(run_of_strings(make_run, "run", payload))]))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert [list(attrs) for _, attrs in hostile.tags] == [list(attrs) for _, attrs in plain.tags]


# All of them take a browser half a minute; that none adds an element is tested above.
@needs_browser
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_no_payload_runs_or_reaches_the_network(make_run, tmp_path, open_page, every):
    runs, payloads = [], PAYLOADS[::every]
    for number, payload in enumerate(payloads):
        name = payload.replace("/", "").encode()[:200].decode()
        runs.append(read_run(run_of_strings(make_run, f"{number} {name}", payload)))
    path = write_report(runs, tmp_path / "report.html")
    opened = open_page(path)
    for button in opened.page.locator("button[data-series]").all()[:10]:
        button.click()
    for summary in opened.page.locator("summary").all()[-5:]:
        summary.click()
        summary.hover()
    assert opened.did() == NOTHING
    text = opened.page.locator("body").inner_text()
    assert all(payload in text for payload in payloads if "  " not in payload)


@needs_browser
def test_that_the_browser_would_have_told(tmp_path, open_page):
    path = tmp_path / "open.html"
    attack = '<script>window.hit=1;alert(2)</script><img src="https://example.org/x.png">'
    path.write_text(f"<!DOCTYPE html><title>x</title>{attack}")
    dialogs, hit, requests, _, _ = open_page(path).did()
    assert (dialogs, hit, requests) == (["2"], 1, ["https://example.org/x.png"])


@needs_browser
def test_the_policy_stops_what_would_have_slipped_through(compared, tmp_path, open_page):
    path = tmp_path / "report.html"
    attack = '<script>window.hit=1</script><img src="https://example.org/x.png"><p style="top:0">'
    path.write_text(render(compared).replace("<main>", f"<main>{attack}"), encoding="utf-8")
    opened = open_page(path)
    dialogs, hit, requests, refused, _ = opened.did()
    assert (dialogs, hit) == ([], 0)
    assert (requests, opened.failures) == (["https://example.org/x.png"], ["csp"])  # not sent
    assert {"script-src-elem", "img-src", "style-src-attr"} == set(refused)


@needs_browser
def test_a_method_can_be_hidden_and_shown_again(compared, tmp_path, open_page):
    opened = open_page(write_report(compared, tmp_path / "report.html"))
    section = opened.page.locator("section[aria-labelledby='setting-1-a']")
    lines, others = section.locator("g[data-series='0']"), section.locator("g[data-series='1']")
    button = section.get_by_role("button", name="cce")
    assert lines.count() == 4
    button.click()
    assert [line.is_visible() for line in lines.all()] == [False] * 4
    assert [line.is_visible() for line in others.all()] == [True] * 4
    assert button.get_attribute("aria-pressed") == "false"
    button.focus()
    opened.page.keyboard.press("Space")
    assert [line.is_visible() for line in lines.all()] == [True] * 4
    assert opened.did() == NOTHING


@needs_browser
def test_the_slider_shows_each_epoch(compared, tmp_path, open_page):
    opened = open_page(write_report(compared, tmp_path / "report.html"))
    slider = opened.page.get_by_role("slider")
    figure = opened.page.locator("section.distribution figure").first
    outline = figure.locator("path[data-kind='wrong']")
    last = outline.get_attribute("d")
    assert "Epoch 6:" in figure.inner_text()
    slider.focus()
    opened.page.keyboard.press("Home")
    assert "Epoch 1:" in figure.inner_text()
    assert opened.page.locator("output").inner_text() == "epoch 1"
    assert outline.get_attribute("d") != last
    opened.page.keyboard.press("ArrowRight")
    assert "Epoch 2:" in figure.inner_text()
    opened.page.keyboard.press("End")
    assert outline.get_attribute("d") == last
    assert opened.did() == NOTHING


@needs_browser
def test_the_page_says_the_same_without_its_script(compared, tmp_path, open_page):
    path = write_report(compared, tmp_path / "report.html")
    still = open_page(path, java_script_enabled=False)
    assert still.page.locator(".slider").is_hidden()
    assert still.page.locator("path.outline").first.get_attribute("d")
    moving = open_page(path)
    for place in ("path.outline", "p.words"):
        texts = [
            [
                found.get_attribute("d") or found.inner_text()
                for found in each.page.locator(place).all()
            ]
            for each in (still, moving)
        ]
        assert texts[0] == texts[1] != []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_phone_scrolls_boxes_and_not_the_page(compared, make_run, tmp_path, open_page, scheme):
    long_name = read_run(make_run("x" * 120, data="y" * 200, method="z" * 90, noise="n" * 90))
    path = write_report([*compared, long_name], tmp_path / "report.html")
    opened = open_page(path, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for summary in opened.page.locator("summary").all():
        summary.evaluate("summary => summary.parentElement.open = true")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    box = opened.page.locator(".scroll.wide").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    light = scheme == "light"
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) > 380) == light


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(compared, tmp_path, open_page, scheme):
    opened = open_page(write_report(compared, tmp_path / "report.html"), color_scheme=scheme)
    colours = opened.page.evaluate(
        """() => [...document.querySelectorAll("p, h1, h2, h3, th, td, summary, button, svg text")]
        .map(each => [getComputedStyle(each).fill, getComputedStyle(each).color, each.tagName])
        .map(([fill, color, tag]) => tag === "text" ? fill : color)"""
    )
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert min(contrast(colour, ground) for colour in set(colours)) >= 4.5


@needs_browser
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 390),
        ("dark", 1280),
        pytest.param("light", 1280, marks=pytest.mark.slow),
        pytest.param("dark", 390, marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing(compared, tmp_path, open_page, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    path = write_report(compared, tmp_path / "report.html")
    # The check is a script of its own, which the page's policy would refuse.
    viewport = {"width": width, "height": 900}
    opened = open_page(path, color_scheme=scheme, viewport=viewport, bypass_csp=True)
    for summary in opened.page.locator("summary").all():
        summary.evaluate("summary => summary.parentElement.open = true")
    found = axe.run(opened.page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


@needs_browser
def test_the_pointer_shows_values_and_hidden_lines_have_none(compared, tmp_path, open_page):
    opened = open_page(write_report(compared, tmp_path / "report.html"))
    chart = opened.page.locator("figure.chart svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    opened.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"])
    assert "training steps" in chart.locator("text.value").first.text_content()
    shown = chart.locator("text.value").count()
    opened.page.locator("button[data-series]").first.click()
    opened.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    assert chart.locator("text.value").count() == shown - 1
    assert opened.did() == NOTHING


def contrast(one, other):
    """Contrast of two colours as the accessibility guidelines count it, from 1 to 21."""

    def luminance(colour):
        parts = np.array([int(part) / 255 for part in re.findall(r"\d+", colour)[:3]])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_check_can_fail():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(150, 150, 150)", "rgb(255, 255, 255)") < 4.5


def test_what_the_slider_shows_holds_no_name_of_a_user(make_run):
    page = render([read_run(run_of_strings(make_run, "run", "secret-name"))])
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert {tuple(json.loads(data)) for data in found} == {
        ("epochs", "panels"),
        ("at", "lines", "x"),
    }
    assert not any("secret-name" in data for data in found)
