import csv
import io
from dataclasses import replace

import pytest

from imae.recipes.output import as_csv, as_markdown, as_text
from imae.recipes.recipe import outcomes


def found(recipe, write_run, tmp_path):
    cell, _ = recipe.cells("short")
    for seed, test in ((7, 0.5), (8, 0.7)):
        write_run(cell, cell.variants[1], seed, test=test, held_out=0.5)
    write_run(cell, cell.variants[0], 7)
    return outcomes(recipe, "short", tmp_path, {})


def test_the_papers_number_stands_beside_ours_with_the_difference(recipe, write_run, tmp_path):
    text = as_markdown(recipe, "short", found(recipe, write_run, tmp_path), changed={})
    row = next(line for line in text.splitlines() if line.startswith("| 40% | CCE"))
    assert [each.strip() for each in row.strip("|").split("|")] == [
        *("40%", "CCE", "lr=0.02, so far", "2 (1 unfinished)"),
        *("65.0 ± 14.1", "81.2", "-16.2"),
        *("60.0 ± 14.1", "67.0", "-7.0"),
        *("10.0 ± 0.0", "34.3", "-24.3"),
        "1 min 30 s",
    ]
    assert "Not run: resnet20-40-gce." in text
    assert "Budget `short`" in text
    assert "Seeds: 7, 8." in text
    assert "a processor" in text
    assert text.rstrip().endswith("A note.")


def test_the_csv_shows_what_the_choice_was_made_from(recipe, write_run, tmp_path):
    rows = list(csv.DictReader(io.StringIO(as_csv(recipe, found(recipe, write_run, tmp_path)))))
    assert len(rows) == 1
    assert rows[0]["cell"] == "resnet20-40-cce"
    assert float(rows[0]["held_out:lr=0.02"]) == 50
    assert (float(rows[0]["best"]), float(rows[0]["best_paper"])) == (65.0, 81.2)
    assert float(rows[0]["best_difference"]) == pytest.approx(-16.2)
    assert float(rows[0]["final_deviation"]) == pytest.approx(14.1421)
    assert float(rows[0]["seconds"]) == 90


def test_a_terminal_gets_short_rows(recipe, write_run, tmp_path):
    text = as_text(recipe, "short", found(recipe, write_run, tmp_path), changed={"seed": 4})
    assert text.startswith("Budget `short`: a sample of the rows")
    assert "; but `seed=4`. Accuracies in percent. The paper's in brackets.\n" in text
    assert "60.0 ± 14.1 (67.0)" in text
    assert "1 min 30 s" in text
    assert "gce" not in text


def test_nothing_run_is_said_and_is_no_error(recipe, tmp_path):
    empty = outcomes(recipe, "short", tmp_path, {})
    text = as_markdown(recipe, "short", empty, changed={})
    assert "Not run: resnet20-40-cce, resnet20-40-gce." in text
    assert as_csv(recipe, empty).count("\n") == 1


def test_the_table_tells_what_was_set_otherwise(recipe, tmp_path):
    changed = {
        "machine": {"threads": "1"},
        "data": {"root": "somewhere", "rows": 400},
        "schedule": {"at": ["3200", "4800"]},
    }
    text = as_markdown(recipe, "paper", outcomes(recipe, "short", tmp_path, {}), changed=changed)
    assert (
        "Budget `paper`: the settings of the paper; but `data.rows=400`, "
        '`schedule.at=["3200", "4800"]`. Accuracies'
    ) in text


def test_a_long_list_of_what_was_not_run_is_counted(recipe, tmp_path):
    cell = recipe.cells("short")[0]
    many = tuple(replace(cell, name=f"cell-{number}") for number in range(13))
    empty = outcomes(replace(recipe, cells=lambda _: many), "short", tmp_path, {})
    text = as_markdown(recipe, "short", empty, changed={})
    assert "Not run: the other cells of `imae reproduce cifar10 --list`." in text
