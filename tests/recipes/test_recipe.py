from imae.recipes.recipe import Cell, Variant, merged


def test_the_last_layer_counts_and_nothing_is_changed():
    first = {"train": {"epochs": 1, "clip": 5.0}, "noise": "symmetric:0.4"}
    second = {"train": {"epochs": 2}, "noise": None, "seed": 3}
    assert merged(first, second) == {
        "train": {"epochs": 2, "clip": 5.0},
        "noise": None,
        "seed": 3,
    }
    assert first["train"] == {"epochs": 1, "clip": 5.0}
    assert merged() == {}


def test_a_section_replaces_a_plain_value():
    assert merged({"data": "digits"}, {"data": {"name": "digits"}}) == {"data": {"name": "digits"}}


def test_a_cell_has_one_variant_that_changes_nothing():
    assert Cell("a", {}, {}).variants == (Variant(),)
