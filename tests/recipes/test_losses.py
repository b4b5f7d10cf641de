from imae.methods import METHODS
from imae.recipes.protocols import method, title


def test_imae_has_the_t_of_the_paper():
    assert method("imae", rate=0.4)["method"]["arguments"] == {"T": 8.0}
    assert method("imae_stable", rate=0)["method"]["arguments"] == {"T": 0.5}
    assert method("cce", rate=0.4)["method"] == {"name": "cce", "arguments": {}}


def test_a_hundred_classes_have_the_t_of_the_authors_runs():
    found = [
        method("imae", rate=rate / 100, num_classes=100)["method"]["arguments"]["T"]
        for rate in (0, 20, 30, 40, 60)
    ]
    assert found == [6.0, 8.0, 8.0, 8.0, 2.0]


def test_methods_that_must_know_the_noise_rate_are_told():
    assert method("co_teaching", rate=0.2)["method"]["arguments"] == {"rate": 0.2}
    assert method("forward_symmetric", rate=0.2)["method"]["arguments"] == {"rate": 0.2}
    assert method("trimmed", rate=0.25)["method"]["arguments"] == {"keep": 0.75}


def test_a_hundred_classes_have_the_settings_of_their_authors():
    wanted = {"alpha": 6.0, "beta": 0.1}
    assert method("sl", rate=0.4, num_classes=100)["method"]["arguments"] == wanted
    assert method("sl", rate=0.4)["method"]["arguments"] == {}
    wanted = {"alpha": 10.0, "beta": 0.5}  # their MAE is half of ours
    assert method("nce_mae", rate=0.4, num_classes=100)["method"]["arguments"] == wanted
    assert method("nce_mae", rate=0.4)["method"]["arguments"] == {"alpha": 1.0, "beta": 0.5}


def test_every_method_has_a_title_of_its_own():
    titles = [title(name) for name in METHODS.names()]
    assert len(set(titles)) == len(titles)
    assert not {entry.name for entry in METHODS if entry.title == entry.name}
    assert title("cce") == "CCE"
