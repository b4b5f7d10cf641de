"""The review page: what it holds, and that no name becomes markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import imae.audit
import imae.report
from imae.audit import page as page_module
from imae.audit.cards import Preview, suspects
from imae.audit.correct import Sample, check
from imae.audit.page import Overview, render, review_words, write_check_page, write_review
from imae.errors import ArgumentError

TEMPLATES = Path(imae.audit.__file__).parent / "templates"
PAYLOADS = (Path(__file__).parents[1] / "report" / "payloads.txt").read_text("utf-8").splitlines()


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.levels = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_suspects_come_most_certain_first_and_alike_rows_together(make_audit):
    audit = make_audit()
    assert suspects(audit).tolist() == [0, 3, 39, 1, 2, 4, 5, 6, 7, 8, 9]
    audit.given[[0, 3, 39]] = 1  # alike and of one label: nothing to point out
    assert suspects(audit).tolist() == [0, 3, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_range_that_begins_near_zero_is_told(make_audit):
    audit = replace(make_audit(), noise_rate_low=0.02)
    said = "2.0% to 31.0% of 40 labels are wrong, perhaps none; about 25.0% by the estimate"
    assert said in render(Overview(audit))
    assert "perhaps none" not in render(Overview(replace(audit, noise_rate_low=0.03)))


def test_the_page_holds_the_verdict_and_every_suspect(make_audit):
    audit = make_audit()
    text = render(Overview(audit))
    assert "About 25.0% of 40 labels are wrong (range 20.0% to 31.0%)" in text
    data = data_of(text)
    assert [row["id"] for row in data["rows"]] == audit.row_ids[suspects(audit)].tolist()
    assert data["rows"][4]["suggested"] is None  # fits no class
    assert text.count('class="card"') == 11
    assert text.count("near-identical to 2 others") == 3
    assert text.count("like rows of another class") == 1  # the last of the three is believed
    assert render(Overview(audit)) == text


def test_a_flagged_row_without_a_better_class_is_shown_so(make_audit):
    audit = make_audit()
    audit.suggested[1] = audit.given[1]
    assert render(Overview(audit)).count("no better class is known") == 1


def test_previews_are_pictures_texts_or_cells_and_bounded_in_number(make_audit):
    shown = {
        "photo/0.jpg": Preview(picture="data:image/png;base64,AAAA", is_small=True),
        "photo/3.jpg": Preview(text="a <b>text</b>"),
        "photo/39.jpg": Preview(cells=(("width", "1.5"),)),
    }
    text = render(Overview(make_audit()), preview=shown.get, most_previews=3)
    assert 'src="data:image/png;base64,AAAA"' in text
    assert "a &lt;b&gt;text&lt;/b&gt;" in text
    assert "<dt>width</dt><dd>1.5</dd>" in text
    assert "The 3 most certain rows have a picture or text" in text
    asked = []
    render(Overview(make_audit()), preview=asked.append, most_previews=3)
    assert asked == ["photo/0.jpg", "photo/3.jpg", "photo/39.jpg"]


def test_many_suspects_are_a_folder_of_pages(make_audit, tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "PAGE_SIZE", 4)
    (tmp_path / "review").mkdir()
    for name in ("review/page-0009.html", "review.html"):
        (tmp_path / name).write_text("of an earlier audit")
    files = write_review(make_audit(), tmp_path / "review.html")
    names = ["page-0001.html", "page-0002.html", "page-0003.html"]
    assert [file.name for file in files] == names
    assert sorted(path.name for path in (tmp_path / "review").iterdir()) == names
    assert not (tmp_path / "review.html").exists()
    assert [len(data_of(file.read_text())["rows"]) for file in files] == [4, 4, 3]
    links = [attrs["href"] for tag, attrs in Elements(files[1].read_text()).tags if tag == "a"]
    assert set(links) == {names[0], names[2]}


def test_a_check_shows_the_sample_and_states_the_bound(make_audit, tmp_path):
    audit = make_audit()
    sample = Sample(np.array([7, 1, 4]), 0.9)
    text = write_check_page(audit, sample, tmp_path / "check.html").read_text()
    assert [row["id"] for row in data_of(text)["rows"]] == [
        "photo/7.jpg",
        "photo/1.jpg",
        "photo/4.jpg",
    ]
    assert "Without a person no method can promise" in text
    assert "Suspects, most certain first" not in text
    assert "A person has judged 0 of 10" in render(Overview(audit), checked=check(audit, {}))


def test_an_audit_without_suspects_is_a_page_too(make_audit):
    audit = make_audit()
    audit.is_flagged[:] = audit.fits_no_class[:] = False
    audit.group[:] = -1
    assert "0 rows to review: 0 flagged" in render(Overview(audit))


def test_rows_to_review_say_why_each_is_there(make_audit):
    audit = make_audit(40)  # flagged 0 to 9, no class 2 and 5, alike 0, 3 and 39
    audit.is_flagged[[2, 3]] = False
    audit.given[[0, 3, 39]] = [0, 1, 0]
    expected = (
        "11 rows to review: 8 flagged, 1 other that fits no class, 2 others near-identical to rows"
    )
    assert expected in review_words(audit)
    assert len(suspects(audit)) == 11


def test_a_number_that_names_a_row_is_called_a_row(make_audit):
    audit = make_audit(40)
    numbered = replace(audit, row_ids=np.arange(40).astype(str))
    first = int(suspects(numbered)[0])
    assert f'title="{first}">row {first}</p>' in render(Overview(numbered))
    assert re.search(r'title="(\S+\.jpg)">\1</p>', render(Overview(audit)))


def test_many_classes_are_listed_as_pairs(make_audit):
    audit = make_audit(400, class_names=tuple(f"kind {number}" for number in range(30)))
    assert "The most frequent pairs of" in render(Overview(audit))


def test_only_html_is_written(make_audit, tmp_path):
    with pytest.raises(ArgumentError, match=r"\.html"):
        write_review(make_audit(), tmp_path / "review.pdf")


def hostile(make_audit, text):
    audit = make_audit(12, class_names=tuple(f"{text}{number}" for number in range(3)), prefix=text)
    return render(Overview(audit), preview=lambda row_id: Preview(text=row_id))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_adds_no_element(make_audit, payload):
    plain, attacked = Elements(hostile(make_audit, "name")), Elements(hostile(make_audit, payload))
    assert [(tag, list(attrs)) for tag, attrs in attacked.tags] == [
        (tag, list(attrs)) for tag, attrs in plain.tags
    ]


def test_ids_are_unique_and_referenced_ones_there(make_audit):
    elements = Elements(render(Overview(make_audit())))
    assert len(elements.ids) == len(set(elements.ids))
    for name in ("aria-labelledby", "aria-controls", "for"):
        for _, attrs in elements.tags:
            assert set((attrs.get(name) or "").split()) <= set(elements.ids)
    assert elements.levels[0] == 1


def test_the_policy_allows_hashed_scripts_and_no_network(make_audit):
    def policy_of(**options):
        tags = Elements(render(Overview(make_audit()), **options)).tags
        return next(attrs["content"] for _, attrs in tags if "http-equiv" in attrs)

    assert policy_of().startswith("default-src 'none'; style-src 'sha256-")
    assert "connect-src" not in policy_of()
    assert "unsafe" not in policy_of()
    assert "connect-src 'self'" in policy_of(saved={})


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_let_no_string_become_markup(template):
    text = template.read_text("utf-8")
    assert not re.search(r"\|\s*safe\b|Markup|autoescape|xmlattr|urlize", text)
    assert not re.search(r"\b(?:style|on\w+|srcset|action)\s*=", text)
    assert not re.search(r"[\w-]+=\{\{", text)  # an attribute without quotes
    for address in re.findall(r'\b(?:href|src)="([^"]*)"', text):
        assert re.fullmatch(r"\{\{ (page_name\(part [+-] 1\)|card\.preview\.picture) \}\}", address)
    for body in re.findall(r"<(?:script|style)[^>]*>(.*?)</(?:script|style)>", text, re.S):
        assert re.fullmatch(r'\{% include "[\w.]+" %\}|\{\{ data\|tojson \}\}', body)


@pytest.mark.parametrize("name", ["decisions.js", "search.js", "review.js", "review.css"])
def test_scripts_and_style_write_no_markup_and_name_no_address(name):
    text = (TEMPLATES / name).read_text("utf-8")
    assert not re.search(r"\{\{|\{%|\{#|</", text)
    assert not re.search(
        r"https?:|url\(|@import|innerHTML|insertAdjacent|\beval\b|document\.write", text
    )
