from imae.methods import METHODS
from imae.recipes.losses import TITLES, method, title


def test_imae_has_the_t_of_the_paper():
    assert method("imae")["method"]["arguments"] == {"T": 8.0}
    assert method("imae_stable", is_noisy=False)["method"]["arguments"] == {"T": 0.5}
    assert method("cce")["method"] == {"name": "cce", "arguments": {}}


def test_every_title_is_of_a_method():
    assert set(TITLES) <= set(METHODS.names())
    assert title("cce") == "CCE"
    assert title("elr") == "elr"
