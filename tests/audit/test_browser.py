"""A whole round of review in a real browser.

Tests wait for elements, never by ``wait_for_function``: a function that is not true at once is
evaluated again by the page itself, and the policy of the page refuses that.
"""

import csv
import io
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from imae.audit.cards import Preview, Rows, suspects
from imae.audit.correct import Sample, correct, corrected_labels, lower_bound
from imae.audit.decisions import read_decisions
from imae.audit.page import write_check_page, write_review
from imae.audit.serve import Review, Server
from imae.data import ImageFiles

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
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
WATCH = """
window.refused = [];
addEventListener("securitypolicyviolation", event => refused.push(event.violatedDirective));
"""
HOSTILE = (
    '<img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "\"'><svg onload=window.hit=1>",
    "=HYPERLINK(1)",
)
PAYLOADS = (Path(__file__).parents[1] / "report" / "payloads.txt").read_text("utf-8").splitlines()
NOTHING = ([], 0, [], [])
PATIENCE = 180_000  # milliseconds: a machine can stand still for a minute and more


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=PATIENCE)
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Opened:
    """A page in the browser and all that it did."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(WATCH)
        self.dialogs, self.requests, self.errors = [], [], []
        self.page.on("dialog", lambda dialog: (self.dialogs.append(1), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.address = address
        self.page.goto(address)

    def did(self):
        """Dialogs, scripts that ran, requests beyond the page, and refusals and errors."""
        hit = self.page.evaluate("window.hit || 0")
        others = [
            url
            for url in self.requests
            if url != self.address and not url.startswith(("data:", "blob:"))
        ]
        return self.dialogs, hit, others, self.page.evaluate("window.refused") + self.errors

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def status(self):
        return self.page.locator("#status").inner_text()

    @property
    def current(self):
        return int(self.page.locator(".card[aria-current]").get_attribute("data-index"))

    @property
    def verdicts(self):
        return [each.inner_text() for each in self.page.locator("[data-verdict]").all()]

    def download(self, path):
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name="Download").click()
        waiting.value.save_as(path)
        return path


@pytest.fixture
def open_page(browser):
    contexts = []

    def open_(address, *, context=None, **options):
        if context is None:
            contexts.append(browser.new_context(**options))
        return Opened(context or contexts[-1], address)

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def review(make_audit, tmp_path):
    """An audit whose names are attacks, and its page."""
    audit = make_audit(class_names=HOSTILE, prefix="<script>window.hit=1</script>&,\"'")
    (path,) = write_review(
        audit, tmp_path / "review.html", preview=lambda row_id: Preview(text=f"text of {row_id}")
    )
    return audit, path


def test_a_whole_round(review, open_page, tmp_path):
    audit, path = review
    rows = suspects(audit).tolist()
    opened = open_page(path.as_uri())
    opened.press("a", "x", "n", "Space", "f")
    assert opened.status == "5 of 11 decided"
    assert opened.verdicts[1:5] == ["kept", "no class", "skipped", "marked"]
    assert opened.current == 5
    opened.press("Backspace")
    assert (opened.status, opened.current) == ("4 of 11 decided", 4)
    opened.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert (opened.status, opened.current) == ("4 of 11 decided", 5)
    opened.press("1")
    opened.press("s", "Shift+ArrowRight", "Shift+ArrowRight")
    assert opened.status == "5 of 11 decided, 3 selected"
    opened.press("a")
    assert opened.status == "8 of 11 decided"
    opened.press("Backspace")
    assert opened.status == "5 of 11 decided"
    opened.press("/")
    opened.page.keyboard.type("HYPER")  # h is the key for help, and is not while typing
    opened.press("Enter")
    assert opened.status == "6 of 11 decided"
    file = opened.download(tmp_path / "decisions.csv")
    assert opened.did() == NOTHING
    decisions = read_decisions(audit, [file])
    assert {row: each.decision for row, each in decisions.items()} == {
        rows[0]: "accept",
        rows[1]: "keep",
        rows[2]: "no_class",
        rows[3]: "skip",
        rows[5]: "relabel" if audit.given[rows[5]] != 0 else "keep",
        rows[6]: "relabel" if audit.given[rows[6]] != 3 else "keep",
    }
    labels = corrected_labels(audit, correct(audit, decisions))
    assert labels[rows[0]] == audit.suggested[rows[0]]
    assert labels[rows[2]] == -1
    assert (labels[rows[5]], labels[rows[6]]) == (0, 3)
    assert np.array_equal(np.delete(labels, rows[:7]), np.delete(audit.given, rows[:7]))


def test_no_payload_runs_or_reaches_the_network(make_audit, open_page, tmp_path):
    audit = make_audit(4 * len(PAYLOADS), class_names=tuple(PAYLOADS))
    ids = [f"{payload}{number}" for number in range(4) for payload in PAYLOADS]
    audit = replace(audit, row_ids=np.array(ids))
    preview = {row_id: Preview(cells=((row_id, row_id),)) for row_id in ids}
    (path,) = write_review(audit, tmp_path / "review.html", preview=preview.get)
    opened = open_page(path.as_uri())
    opened.press("a", "1", "Shift+1", "/")
    opened.page.locator("#search-list li").nth(3).hover()
    opened.press("Enter")
    opened.page.locator(".confusion button").first.click()
    assert opened.status.startswith("4 of")
    assert len(read_decisions(audit, [opened.download(tmp_path / "decisions.csv")])) == 4
    assert opened.did() == NOTHING


def test_the_file_is_plain_csv_without_formulas(review, open_page, tmp_path):
    opened = open_page(review[1].as_uri())
    opened.page.get_by_role("button", name="Select all shown").click()
    opened.press("4")
    content = opened.download(tmp_path / "decisions.csv").read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") == 12
    cells = [cell for row in csv.reader(io.StringIO(content.decode())) for cell in row]
    assert "'=HYPERLINK(1)" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


def test_decisions_survive_closing_the_page(review, open_page):
    _, path = review
    first = open_page(path.as_uri())
    first.press("a", "x")
    assert first.status == "2 of 11 decided"
    context = first.page.context
    first.page.goto("about:blank")  # as a person leaves it: closing ends its process at once
    first.page.close()
    again = open_page(path.as_uri(), context=context)
    for _ in range(20):  # on a busy machine the browser writes what it stores a moment later
        if again.status != "0 of 11 decided":
            break
        again.page.wait_for_timeout(500)
        again.page.reload()
    assert (again.status, again.current) == ("2 of 11 decided", 2)
    again.press("Backspace")
    assert again.status == "1 of 11 decided"


def test_decisions_that_cannot_be_kept_are_not_lost_on_the_page(review, open_page):
    opened = open_page(review[1].as_uri())
    opened.page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full') } }")
    opened.press("x")
    opened.page.evaluate("dispatchEvent(new Event('focus'))")
    assert opened.status == "1 of 11 decided"
    assert "cannot keep decisions" in opened.page.locator("#alert").inner_text()


def test_pages_of_one_run_share_their_decisions(review, open_page, tmp_path, make_audit):
    _, path = review
    one = open_page(path.as_uri())
    two = open_page(path.as_uri(), context=one.page.context)
    one.page.bring_to_front()
    one.press("x")
    assert one.status == "1 of 11 decided"
    two.page.bring_to_front()
    two.page.locator("#status", has_text=re.compile(r"^1 of")).wait_for()
    (other,) = write_review(make_audit(prefix="other"), tmp_path / "other.html")
    assert open_page(other.as_uri(), context=one.page.context).status == "0 of 11 decided"


def test_keys_do_not_fire_while_typing_or_with_a_modifier(review, open_page):
    opened = open_page(review[1].as_uri())
    opened.press("/")
    opened.page.keyboard.type("axnf 1")
    opened.press("Backspace", "Escape")
    opened.press("Control+a", "Alt+x", "Meta+n")
    opened.page.locator("select[name=class]").focus()
    opened.page.keyboard.type("xa")
    opened.page.locator("input[name=certainty]").focus()
    opened.press("ArrowRight", "a")
    opened.press("h")
    opened.page.locator(".card").first.click()
    opened.press("h", "a", "x")  # the help is open
    assert opened.page.locator("#help").is_visible()
    opened.press("Escape")
    assert opened.status == "0 of 11 decided"


def test_shift_and_a_digit_are_the_classes_from_eleven_on(make_audit, open_page, tmp_path):
    audit = make_audit(class_names=tuple(f"kind {number}" for number in range(1, 25)))
    audit.given[:] = 23
    (path,) = write_review(audit, tmp_path / "review.html")
    opened = open_page(path.as_uri())
    opened.press("1", "0", "Shift+1", "Shift+0")
    assert opened.verdicts[:4] == ["→ kind 1", "→ kind 10", "→ kind 11", "→ kind 20"]
    opened.press("/")
    opened.page.keyboard.type("ind 2")
    opened.press("ArrowDown", "Enter")
    assert opened.verdicts[4] == "→ kind 20"


def test_a_class_that_is_called_by_a_digit_has_that_key(make_audit, open_page, tmp_path):
    audit = make_audit(class_names=("0", "1", "7", "none"))
    audit.given[:] = 3
    (path,) = write_review(audit, tmp_path / "review.html")
    opened = open_page(path.as_uri())
    opened.press("7", "0", "1", "5")
    assert opened.verdicts[:4] == ["→ 7", "→ 0", "→ 1", ""]
    assert opened.page.locator("#bar [data-class]").all_inner_texts() == [
        "0 0", "1 1", "7 7", "2 none",
    ]  # fmt: skip
    opened.press("/")
    opened.page.keyboard.type("none")
    assert opened.page.locator("#search-list li").inner_text() == "none  (2)"


def test_word_buttons_do_what_keys_do(review, open_page):
    opened = open_page(review[1].as_uri())
    for name in ("Accept", "Keep", "No class", "Skip", "Mark", "Undo"):
        opened.page.locator("#bar").get_by_role("button", name=name).click()
    assert opened.status == "4 of 11 decided"
    opened.press("Space")  # belongs to the row, not to the button that was clicked
    assert opened.verdicts[4] == "skipped"
    opened.page.locator("#bar").get_by_role("button", name="Other class").click()
    opened.page.locator("#search-list li").nth(1).click()
    assert opened.status == "6 of 11 decided"


def test_rows_are_selected_by_mouse_and_by_group(review, open_page):
    opened = open_page(review[1].as_uri())
    opened.page.locator("[data-group]").first.click()
    assert opened.status.endswith("3 selected")
    opened.press("Escape")
    opened.page.locator(".change").nth(2).click()
    opened.page.locator(".change").nth(5).click(modifiers=["Shift"])
    assert opened.status.endswith("4 selected")
    opened.page.locator(".card input").nth(3).uncheck()
    assert opened.status.endswith("3 selected")
    opened.press("x")
    assert [number for number, words in enumerate(opened.verdicts) if words] == [2, 4, 5]


def test_filters_show_what_they_say(review, open_page):
    audit, path = review
    rows = suspects(audit)
    opened = open_page(path.as_uri())
    shown = opened.page.locator(".card:visible")
    opened.page.locator("select[name=kind]").select_option("none")
    assert shown.count() == 2
    opened.page.get_by_role("button", name="Reset").click()
    opened.page.locator(".card:not([hidden])").nth(10).wait_for()
    assert opened.page.locator(".card:not([hidden])").count() == 11
    opened.page.locator("select[name=class]").select_option("1")
    suggested = np.where(audit.fits_no_class, -1, audit.suggested)
    assert shown.count() == ((audit.given == 1) | (suggested == 1))[rows].sum()
    opened.page.locator("select[name=class]").select_option("")
    opened.page.locator("input[name=certainty]").fill("90")
    assert shown.count() == (audit.wrong_probability[rows] >= 0.9).sum()
    button = opened.page.locator(".confusion button").first
    number = int(button.inner_text())
    button.click()
    assert shown.count() == number
    opened.press("x")
    opened.page.locator("select[name=kind]").select_option("decided")
    assert shown.count() == 1
    assert opened.did() == NOTHING


def many(make_audit, tmp_path):
    """An audit on three pages, and the files of the pages."""
    audit = make_audit(4400, class_names=("cat", "dog", "<b>owl</b>"))
    return audit, write_review(audit, tmp_path / "review.html")


def test_filters_count_the_rows_of_other_pages_and_lead_to_them(make_audit, open_page, tmp_path):
    expect = pytest.importorskip("playwright.sync_api").expect  # waits until it holds
    audit, files = many(make_audit, tmp_path)
    rows = suspects(audit)
    is_pair = (audit.given == 1) & (audit.suggested == 2) & ~audit.fits_no_class
    here, total = is_pair[rows[:500]].sum(), is_pair[rows].sum()
    opened = open_page(files[0].as_uri())
    matches, cards = opened.page.locator("#matches"), opened.page.locator(".card:visible")
    expect(matches).to_be_hidden()
    opened.page.locator("[data-pair='1-2']").click()
    assert here < total
    expect(cards).to_have_count(int(here))
    expect(matches).to_contain_text(f"{here} of {total} rows under these filters are on this page.")
    there = is_pair[rows[500:1000]].sum()
    matches.get_by_role("link", name=f"Next: {there} on page 2").click()
    opened.page.wait_for_url(f"{files[1].as_uri()}#*")
    expect(matches).to_be_visible()
    expect(cards).to_have_count(int(there))
    expect(opened.page.locator("select[name=pair]")).to_have_value("1-2")
    opened.page.locator("select[name=kind]").select_option("open")
    expect(matches).to_contain_text("known page by page")
    opened.page.get_by_role("button", name="Reset").click()
    expect(matches).to_be_hidden()


def test_the_bar_counts_this_page_and_all_pages(make_audit, open_page, tmp_path):
    audit, files = many(make_audit, tmp_path)
    opened = open_page(files[0].as_uri())
    opened.press("a", "x")
    later = open_page(files[1].as_uri(), context=opened.page.context)
    later.press("a")
    total = f"{len(suspects(audit)):,}"
    assert later.status == f"1 of 500 decided on this page, 3 of {total} in all"


def test_a_decision_on_another_page_is_not_taken_back_unseen(make_audit, open_page, tmp_path):
    _, files = many(make_audit, tmp_path)
    opened = open_page(files[0].as_uri())
    opened.press("a", "x")
    later = open_page(files[1].as_uri(), context=opened.page.context)
    later.press("Backspace")
    assert "on another page" in later.page.locator("#alert").inner_text()
    assert ", 2 of " in later.status
    later.press("a", "Backspace")
    assert later.status.startswith("0 of 500 decided on this page, 2 of ")


def test_a_key_that_types_a_slash_or_is_an_arrow_chooses_no_class(review, open_page):
    opened = open_page(review[1].as_uri())
    for key, code in (("/", "Digit2"), ("ArrowRight", "Numpad6")):
        given = f"{{key: '{key}', code: '{code}', shiftKey: true, bubbles: true}}"
        opened.page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {given}))")
        opened.press("Escape")
    assert opened.status.startswith("0 of 11 decided")
    opened.press("2")
    assert opened.status.startswith("1 of 11 decided")


def test_classes_are_shown_with_their_keys(review, open_page):
    opened = open_page(review[1].as_uri())
    buttons = opened.page.locator(".classes button")
    assert [each.inner_text() for each in buttons.all()] == [
        f"{key} {name}" for key, name in zip("1234", HOSTILE, strict=True)
    ]
    buttons.nth(3).click()
    assert opened.verdicts[0] in ("kept", f"→ {HOSTILE[3]}")
    opened.press("h")
    assert f"2\n{HOSTILE[1]}" in opened.page.locator("#help").inner_text()
    assert opened.did() == NOTHING


def test_a_row_is_looked_at_alone(make_audit, open_page, tmp_path):
    audit = make_audit(class_names=HOSTILE)
    cells = tuple((f"<b>{number}", "x" * 200 if number == 0 else "") for number in range(29))
    (path,) = write_review(audit, tmp_path / "r.html", preview=lambda _: Preview(cells=cells))
    opened = open_page(path.as_uri())
    dialog = opened.page.locator("#look")
    opened.page.get_by_role("button", name="All 29 columns").nth(1).click()
    assert (dialog.locator("dd").count(), opened.current) == (29, 1)
    assert dialog.locator("dt").nth(28).inner_text() == "<b>28"
    opened.press("Escape")
    assert not dialog.is_visible()
    opened.page.locator(".preview").nth(2).click()
    assert dialog.is_visible()
    opened.press("x")  # decides, and the dialog is gone
    assert (dialog.is_visible(), opened.status) == (False, "1 of 11 decided")
    opened.press("Enter")
    assert dialog.is_visible()
    assert opened.did() == NOTHING


def test_a_box_covers_no_value(make_audit, open_page, tmp_path):
    cells = (("width", "1.5"), ("height", ""))
    path = tmp_path / "r.html"
    write_review(make_audit(), path, preview=lambda _: Preview(cells=cells))
    for width in (1280, 390):
        opened = open_page(path.as_uri(), viewport={"width": width, "height": 800})
        value = opened.page.locator(".cells dd").first.bounding_box()
        box = opened.page.locator(".pick").first.bounding_box()
        assert box["y"] > value["y"] + value["height"]


def test_a_long_class_leaves_the_box_on_its_card(make_audit, open_page, tmp_path):
    path = tmp_path / "r.html"
    write_review(make_audit(class_names=[f"{name}onerror=alert(1)" for name in HOSTILE]), path)
    opened = open_page(path.as_uri(), viewport={"width": 375, "height": 740}, is_mobile=True)
    opened.press("a")
    card, box = (
        opened.page.locator(each).first.bounding_box() for each in (".card", ".pick input")
    )
    assert opened.verdicts[0].startswith("accepted: ")
    assert box["width"] == 18
    assert box["x"] + box["width"] < card["x"] + card["width"]


def test_a_served_photo_is_enlarged_from_its_file(make_audit, open_page, tmp_path, serve):
    photos = tmp_path / "photos"
    photos.mkdir()
    names = tuple(f"photo/{row}.jpg" for row in range(40))
    (photos / "photo").mkdir()
    for name in names:
        Image.new("RGB", (640, 480), (200, 30, 30)).save(photos / name)
    inputs = ImageFiles(photos, names)
    rows = Rows({name: (inputs, row) for row, name in enumerate(names)})
    opened = open_page(serve(Review(make_audit(), tmp_path / "d.csv", rows=rows)).address)
    with opened.page.expect_response("**/picture/*") as answer:
        opened.page.locator(".card img").first.click()
    assert answer.value.status == 200
    # The preview is shown until the whole file has been read.
    opened.page.wait_for_function("document.querySelector('#look img').naturalWidth === 640")
    assert opened.did()[3] == []


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_a_round_on_a_phone(review, open_page, tmp_path, scheme):
    audit, path = review
    opened = open_page(
        path.as_uri(),
        viewport={"width": 390, "height": 844},
        color_scheme=scheme,
        has_touch=True,
        is_mobile=True,
    )
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    card = opened.page.locator(".card").first.bounding_box()
    assert card["y"] < 600  # the suspects are on the first screen
    assert opened.page.locator("#bar").bounding_box()["height"] < 90  # of 844
    for name in ("Accept", "Keep", "More", "No class"):
        button = opened.page.locator("#bar").get_by_role("button", name=name)
        assert button.bounding_box()["height"] >= 44
        button.tap()
    assert opened.status == "3 of 11 decided"
    assert len(read_decisions(audit, [opened.download(tmp_path / "phone.csv")])) == 3
    assert opened.did() == NOTHING


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing(review, open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    opened = open_page(review[1].as_uri(), color_scheme=scheme)
    decided = ["a", "x", "n", "Space", "f", "1", "s"]
    for keys in ([], decided, ["h"], ["Escape", "/"], ["Escape", "Enter"]):
        opened.press(*keys)
        found = axe.run(opened.page).response["violations"]
        assert [(keys, each["impact"], each["id"]) for each in found] == []


def test_the_check_states_the_bound_that_python_computes(make_audit, open_page, tmp_path):
    audit = make_audit(400)
    sample = Sample(np.flatnonzero(audit.is_flagged)[:30], 0.9)
    opened = open_page(write_check_page(audit, sample, tmp_path / "check.html").as_uri())
    bound = opened.page.locator("#bound")
    assert bound.inner_text() == "0 of 30 judged; the bound needs all of them."
    opened.press("x", "x", *["1"] * 4, "Space")
    wrong = sum("→" in words for words in opened.verdicts)
    opened.page.get_by_role("button", name="Select all shown").click()
    for _ in range(7):
        opened.page.locator(".card.selected input").first.uncheck()
    opened.press("n")
    expected = math.floor(1000 * lower_bound(wrong + 23, 30, confidence=0.9)) / 10
    assert f"with 90% confidence at least {expected:.1f}% of all 100" in bound.inner_text()


def test_a_served_page_writes_decisions_as_they_are_made(review, open_page, tmp_path, serve):
    audit, _ = review
    file = tmp_path / "run" / "decisions.csv"
    opened = open_page(serve(Review(audit, file)).address)
    with opened.page.expect_response("**/decisions"):
        opened.press("a")
    with opened.page.expect_response("**/decisions"):
        opened.press("x")
    rows = suspects(audit).tolist()
    kinds = {row: each.decision for row, each in read_decisions(audit, [file]).items()}
    assert kinds == {rows[0]: "accept", rows[1]: "keep"}
    with opened.page.expect_response("**/decisions"):
        opened.press("Backspace")
    assert list(read_decisions(audit, [file])) == [rows[0]]
    _, hit, requests, errors = opened.did()
    assert (hit, errors) == (0, [])
    assert all(url.startswith(opened.address) for url in requests)
    later = open_page(serve(Review(audit, file)).address)
    assert later.status == "1 of 11 decided"


def test_served_tabs_show_what_the_other_has_decided(review, open_page, tmp_path, serve):
    audit, _ = review
    file = tmp_path / "decisions.csv"
    server = serve(Review(audit, file))
    first = open_page(server.address)
    second = open_page(server.address, context=first.page.context)
    with first.page.expect_response("**/decisions"):
        first.press("a")
    with second.page.expect_response("**/decided"):
        second.page.evaluate("dispatchEvent(new Event('focus'))")  # its tab is opened
    second.page.get_by_text("1 of 11 decided").wait_for()
    assert second.verdicts[0].startswith("accepted")
    with second.page.expect_response("**/decisions"):
        second.press("ArrowRight", "x")
    rows = suspects(audit).tolist()
    kinds = {row: each.decision for row, each in read_decisions(audit, [file]).items()}
    assert kinds == {rows[0]: "accept", rows[1]: "keep"}
    assert second.did()[3] == []


def test_a_server_that_is_gone_is_said(review, open_page, tmp_path, serve):
    server = serve(Review(review[0], tmp_path / "decisions.csv"))
    opened = open_page(server.address)
    server.shutdown()
    server.server_close()
    opened.press("a")
    opened.page.get_by_text("Not saved: the server does not answer").wait_for()


@pytest.fixture
def serve():
    import threading

    running = []

    def start(review):
        server = Server(review)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()
