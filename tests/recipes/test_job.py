import pytest

from imae.recipes.grid import build_jobs
from imae.recipes.runner import attempt_settings, train_or_resume
from imae.records import RunFolder


@pytest.fixture
def job(recipe, tmp_path):
    return build_jobs(recipe.cells("short")[:1], seeds=1, folder=tmp_path, settings={})[0]


def test_a_job_is_done_once(job):
    first = train_or_resume(job.config)
    assert first.result["final"]["step"] == 4
    again = train_or_resume(job.config)
    assert again.result == first.result


def test_plain_settings_do_the_same_run(job):
    assert attempt_settings(job.content()) is None
    assert RunFolder(job.config.out).result() is not None


def test_what_goes_wrong_is_given_back(job):
    content = job.content()
    content["train"]["batch_size"] = 1000
    assert "more than the 180 rows" in attempt_settings(content)


def test_notes_on_the_data_are_said_only_where_they_are_wanted(job, tmp_path, capsys):
    rows = [f"{row},{row * row % 7},{row % 2}" for row in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["count,x,label", *rows]))
    content = {**job.content(), "data": {"name": str(tmp_path / "rows.csv")}}
    assert attempt_settings({**content, "out": str(tmp_path / "a")}) is None
    assert "'count' is not used" in capsys.readouterr().err
    assert attempt_settings({**content, "out": str(tmp_path / "b")}, has_notes=False) is None
    assert "count" not in capsys.readouterr().err
