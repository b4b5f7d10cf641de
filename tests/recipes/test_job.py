import pytest

from imae.recipes.grid import build_jobs
from imae.recipes.runner import attempt_content, train_or_resume
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
    assert attempt_content(job.content()) is None
    assert RunFolder(job.config.out).result() is not None


def test_what_goes_wrong_is_given_back(job):
    content = job.content()
    content["train"]["batch_size"] = 1000
    assert "more than the 180 rows" in attempt_content(content)
