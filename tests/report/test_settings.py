from imae.report.hints import differing
from imae.report.read import flatten, shared

ONE = {"seed": 1, "out": "a", "train": {"epochs": 4, "steps": [1, 2]}, "noise": None, "log": {}}
TWO = {"seed": 2, "out": "b", "train": {"epochs": 5, "steps": [1, 2]}, "noise": None, "lr": 0.1}


def test_nested_values_get_dotted_names():
    assert flatten(ONE) == {
        "seed": "1",
        "out": "a",
        "train.epochs": "4",
        "train.steps": "[1, 2]",
        "noise": "null",
        "log": "{}",
    }


def test_what_is_shared_is_the_same_everywhere():
    assert shared([ONE, TWO]) == {"train.steps": "[1, 2]", "noise": "null"}
    assert shared([ONE]) == flatten(ONE)


def test_seed_and_machine_are_not_a_difference():
    assert differing([ONE, TWO]) == {"train.epochs": ["4", "5"]}
    assert differing([ONE, ONE | {"seed": 9, "out": "c", "machine": {"threads": 2}}]) == {}


def test_a_nested_seed_is_a_difference():
    found = differing([{"noise": {"seed": 1}}, {"noise": {"seed": 2}}])
    assert found == {"noise.seed": ["1", "2"]}
