import math
import re
import shlex
from itertools import pairwise

import numpy as np
import pytest

from imae.train import build_config
from imae.train.config import with_settings
from imae.tune import shrinkage
from imae.tune.outcome import (
    Outcome,
    Trial,
    added_rate,
    choose,
    noise_rate,
    standard_error,
    train_command,
    write_page,
)


def trial(number, accuracy, fitted, is_hit=None):
    return Trial(number, {}, accuracy, fitted=fitted, is_hit=is_hit, num_rows=100)


@pytest.mark.parametrize(("rate", "classes"), [(0.0, 2), (0.4, 10), (0.8, 10), (0.3, 100)])
def test_shrinkage_is_that_of_accuracies_under_uniform_noise(rate, classes):
    def on_given(accuracy):
        return (1 - rate) * accuracy + rate * (1 - accuracy) / (classes - 1)

    ratio = (on_given(0.9) - on_given(0.6)) / 0.3
    assert shrinkage(rate, classes) == pytest.approx(ratio)


def test_of_equally_good_trials_the_one_that_has_memorised_less_is_chosen():
    trials = [trial(0, 0.40, 0.40), trial(1, 0.60, 0.95), trial(2, 0.58, 0.70)]
    assert standard_error(0.6, 100) == pytest.approx(math.sqrt(0.24 / 100), rel=0.01)
    assert choose(trials, is_clean=False).number == 2
    assert choose(trials, is_clean=True).number == 1


def test_the_defaults_stay_where_nothing_is_better_by_more_than_chance():
    trials = [trial(0, 0.56, 0.90), trial(1, 0.60, 0.95), trial(2, 0.59, 0.60)]
    assert choose(trials, is_clean=False).number == 0  # the standard error is 0.049
    assert choose(trials, is_clean=True).number == 1
    trials[0] = trial(0, 0.55, 0.55)
    assert choose(trials, is_clean=False).number == 2


def test_a_trial_that_has_learned_less_is_not_one_that_has_memorised_less():
    """Both predict 6 points more of the training labels; one predicts fewer of all labels."""
    trials = [trial(1, 0.60, 0.66), trial(2, 0.57, 0.63)]
    assert choose(trials, is_clean=False).number == 1


def test_where_training_labels_are_not_measured_the_best_is_chosen():
    assert choose([trial(1, 0.58, None), trial(2, 0.60, None)], is_clean=False).number == 2


def test_trials_are_compared_on_the_same_rows():
    """A difference of two points counts when all other rows are predicted alike."""
    best, worse = np.zeros(100, bool), np.zeros(100, bool)
    best[:60] = worse[:58] = True
    close = [trial(1, 0.60, 0.95, best), trial(2, 0.58, 0.70, worse)]
    assert choose(close, is_clean=False).number == 1  # 0.02 > sqrt(2) / 100
    swapped = worse.copy()
    swapped[[0, 1, 2, 97, 98, 99]] = [False] * 3 + [True] * 3
    apart = [trial(1, 0.60, 0.95, best), trial(2, 0.58, 0.70, swapped)]
    assert choose(apart, is_clean=False).number == 2  # 0.02 < sqrt(8) / 100


def test_trials_that_were_stopped_early_are_never_chosen():
    assert choose([trial(0, None, 0.1), trial(1, 0.2, 0.9)], is_clean=False).number == 1


def test_the_command_holds_what_differs_from_the_defaults_and_is_quoted():
    base = build_config(
        {
            "data": {"name": "my $(data).csv", "options": {"label_column": "a b"}},
            "optimizer": {"momentum": 0.8},
            "schedule": {"name": "steps", "at": [3, 4]},
            "out": "elsewhere",
        }
    )
    command = train_command(base, {"method.name": "gce", "method.arguments.q": 0.5})
    assert command == (
        "imae train 'my $(data).csv' --set 'data.options.label_column=a b' --loss gce "
        "--set method.arguments.q=0.5 --set optimizer.momentum=0.8 --set schedule.name=steps "
        "--set schedule.at=3,4"
    )


def made_up(tmp_path, trials, **replaced):
    """An outcome whose last trial was chosen."""
    given = {
        "settings": dict(trials[-1].settings),
        "command": "imae train rows.csv --loss gce --lr 0.1",
        "chosen": trials[-1],
        "best": trials[-1],
        "standard_error": 0.05,
        "shrinkage": 1.0,
        "noise_rate": 0.0,
        "is_rate_known": False,
        "is_clean": True,
        "trials": trials,
        "folder": tmp_path,
        "page": tmp_path / "tune.html",
    }
    return Outcome(**given | replaced)


def test_the_command_has_the_parameters_of_its_own_loss_only():
    base = build_config({"data": {"name": "digits"}, "method": {"arguments": {"T": 4.0}}})
    settings = {"method.name": "gce", "method.arguments.q": 0.5}
    command = train_command(base, settings)
    assert command == "imae train digits --loss gce --set method.arguments.q=0.5"


def test_the_command_writes_none_and_lists_so_that_they_are_read_again():
    base = build_config({"data": {"name": "digits"}})
    given = {"method.name": "forward", "method.arguments.matrix": [[0.9, 0.1], [0.2, 0.8]]}
    words = shlex.split(train_command(base, given))
    texts = [word for before, word in pairwise(words) if before == "--set"]
    read = with_settings({}, texts)["method"]["arguments"]
    assert read == {"matrix": [[0.9, 0.1], [0.2, 0.8]]}
    command = train_command(base, {"method.name": "imae_capped", "method.arguments.cap": None})
    assert command == "imae train digits --set method.arguments.cap=none"


@pytest.mark.parametrize(
    ("noise", "rate"),
    [("symmetric:0.4", 0.4), ("uniform:0.4", 0.36), ("cifar10_asymmetric:0.4", None), (None, None)],
)
def test_the_share_of_wrong_labels_is_known_where_it_follows_from_the_rate(noise, rate):
    base = build_config({"data": {"name": "digits"}, "noise": noise})
    assert added_rate(base, 10) == (None if rate is None else pytest.approx(rate))


def test_few_rows_that_are_all_predicted_do_not_show_that_no_label_is_wrong(tmp_path):
    """Wilson's interval of 20 of 20 goes down to 84%."""
    best = Trial(0, {}, 1.0, num_rows=20)
    rate = noise_rate(best, is_clean=False)
    assert rate == pytest.approx(0.161, abs=0.001)
    error = standard_error(1.0, 20)
    assert error == pytest.approx(0.024, abs=0.001)
    found = {"standard_error": error, "shrinkage": shrinkage(rate, 3), "noise_rate": rate}
    first, second = made_up(tmp_path, (best,), is_clean=False, **found).lines()
    assert first == (
        "best: 100.0% of 20 held-out given labels, standard error 2.4 points, 95% interval 83.9% "
        "to 100.0%"
    )
    assert second.startswith(
        "with at most 16% wrong labels, differences show at 0.76 of their true size or more ("
    )


@pytest.fixture
def page(tmp_path):
    """The page of three trials with another loss and ten times the learning rate each."""
    trials = tuple(
        Trial(number, {"method.name": loss, "optimizer.lr": lr}, 0.5 + 0.1 * number, num_rows=100)
        for number, (loss, lr) in enumerate([("cce", 0.001), ("mae", 0.01), ("gce", 0.1)])
    )
    outcome = made_up(tmp_path, trials)
    write_page(outcome, 0, data="rows.csv", date=None)
    return outcome.page.read_text()


def test_the_learning_rate_is_drawn_by_its_logarithm(page):
    narrow, _ = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', narrow)]
    first, second = (after - before for before, after in pairwise(places))
    assert first == pytest.approx(second, abs=0.2)
    assert {"0.001", "0.01", "0.1"} <= set(re.findall(r">([\d.]+)</text>", narrow))


def test_the_command_is_broken_between_its_words(page):
    """Otherwise a phone breaks it after the two dashes of an option."""
    (shown,) = re.findall(r'<pre class="command".*?</pre>', page)
    assert "<span>--loss</span> <span>gce</span> <span>--lr</span>" in shown
    assert re.sub(r"<[^>]+>", "", shown) == "imae train rows.csv --loss gce --lr 0.1"


def test_names_are_aligned_as_words_and_numbers_as_numbers(page):
    assert '<th scope="col">Loss</th><th scope="col" class="number">Learning rate</th>' in page
    assert '<td>gce</td><td class="number">0.1</td>' in page
