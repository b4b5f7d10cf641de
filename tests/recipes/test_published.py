import pytest

from imae.recipes.recipe import published, published_cells, published_table

RECIPES = (
    "weights",
    "cifar10",
    "cifar100_symmetric",
    "cifar100_asymmetric",
    "clothing1m",
    "optimisers",
    "mars",
)


@pytest.mark.parametrize(
    ("recipe", "cell", "measure", "value"),
    [
        ("weights", "imae-16", "variance", 354.113),
        ("cifar10", "resnet56-40-cce", "noisy", 75.0),
        ("cifar10", "resnet20-80-imae", "final", 41.0),
        ("cifar100_symmetric", "60-sl", "from SL", 41.5),
        ("cifar100_symmetric", "40-imae", "best", 54.7),
        ("cifar100_symmetric", "0-cce", "final", 70.0),
        ("cifar100_symmetric", "60-d2l", "from D2L", 42.3),
        ("cifar100_symmetric", "60-dm", "unpublished", 43.7),
        ("cifar100_asymmetric", "40-imae", "final", 63.3),
        ("clothing1m", "joint_optim", "from Joint Optim.", 72.2),
        ("optimisers", "adam-0.005-1-imae", "final", 78.6),
        ("mars", "imae", "paper's mAP", 70.9),
        ("t_ablation", "40-imae-4", "unpublished final", 70.7),
    ],
)
def test_a_printed_number_is_found(recipe, cell, measure, value):
    assert published(recipe, cell)[measure] == value
    assert cell in published_cells(recipe)


def test_comments_of_the_source_are_never_called_the_papers():
    for cell in published_cells("t_ablation"):
        assert all(name.startswith("unpublished ") for name in published("t_ablation", cell))
    assert published_table("t_ablation") is None


def test_what_the_paper_does_not_print_is_empty():
    assert published("cifar10", "resnet20-40-gce") == {}
    assert published("cnn8", "40-cce") == {}
    assert published_table("cnn8") is None
    assert published_cells("cnn8") == ()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_table_has_a_caption_and_numbers_that_can_be(recipe):
    assert published_table(recipe)
    for cell in published_cells(recipe):
        numbers = published(recipe, cell)
        assert numbers
        if recipe != "weights":
            assert all(0 < number <= 100 for number in numbers.values())


@pytest.mark.parametrize("cell", published_cells("cifar10"))
def test_the_printed_hybrid_is_all_training_rows_and_the_test_rows(cell):
    """What all training rows must come to lies between the shares that the subsets allow."""
    numbers = published("cifar10", cell)
    rate = int(cell.split("-")[1]) / 100
    of_all_rows = (numbers["hybrid"] * 60 - numbers["final"] * 10) / 50
    least = (1 - rate) * numbers["clean"]
    most = least + rate * (100 - numbers.get("noisy", 0))
    assert least - 0.2 <= of_all_rows <= most + 0.2
    if rate > 0 and "imae" in cell:  # the rows with right labels alone would not fit
        subset = (50 * (1 - rate) * numbers["clean"] + 10 * numbers["final"]) / (60 - 50 * rate)
        assert abs(subset - numbers["hybrid"]) > 1
