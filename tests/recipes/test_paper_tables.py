"""Each table against what the paper, or the protocol that it follows, prescribes."""

import json

from imae.data.sources.photo_sets import CLASSES
from imae.methods import METHODS
from imae.methods.matrix import Structure
from imae.recipes import RECIPES
from imae.recipes.recipe import outcomes
from imae.recipes.tables.imae_settings import choose_t
from imae.train import build_config


def configs(recipe, budget="paper"):
    return {cell.name: build_config(cell.settings) for cell in RECIPES.build(recipe).cells(budget)}


def test_the_clean_cells_have_known_truth_and_a_small_t():
    by_name = configs("cifar10")
    assert len(by_name) == 5 * 8 + len(METHODS) + 1  # trimming with IMAE
    assert by_name["resnet20-40-elr"].method.name == "elr"
    assert by_name["resnet20-0-cce"].noise == "symmetric:0.0"
    assert by_name["resnet20-0-imae"].method.arguments == {"T": 0.5}
    assert by_name["resnet56-80-imae"].method.arguments == {"T": 8.0}
    assert by_name["resnet56-80-imae"].model.name == "resnet56"
    assert by_name["resnet56-80-imae"].data.hold_out == 0


def test_features_of_cifar10_have_every_method_under_every_noise():
    by_name = configs("cifar10", "features")
    assert len(by_name) == 6 * (len(METHODS) + 1)  # trimming also with IMAE
    assert by_name["60-gce"].noise == "symmetric:0.6"
    assert by_name["asymmetric40-gce"].noise == "cifar10_asymmetric:0.4"
    assert by_name["0-imae"].method.arguments == {"T": 0.5}
    worst = configs("cifar_n", "features")["worst-cce"]
    assert (worst.data.name, worst.data.options) == ("cifar10n", {"variant": "worst"})


def test_optimisers_keep_their_settings_on_features():
    by_name = {name: each.optimizer for name, each in configs("optimisers", "features").items()}
    assert (by_name["adam-0.005-1-gce"].name, by_name["adam-0.005-1-gce"].lr) == (
        "adam_caffe",
        0.005,
    )
    assert by_name["sgd-cce"].lr == 0.01


def test_the_noise_trades_classes_within_a_coarse_class():
    by_name = configs("cifar100_asymmetric")
    assert by_name["30-forward"].noise == "cifar100_asymmetric:0.3"
    assert {name.split("-")[0] for name in by_name} == {"20", "30", "40"}


def test_every_method_of_the_table_at_every_rate():
    by_name = configs("cifar100_symmetric")
    assert len(by_name) == 60
    assert by_name["60-d2l"].noise == "symmetric:0.6"
    assert {config.model.name for config in by_name.values()} == {"resnet44"}


def test_the_protocol_of_the_literature():
    config = next(iter(configs("cnn8").values()))
    assert (config.model.name, config.train.epochs, config.train.batch_size) == ("cnn8", 120, 128)
    assert (config.train.clip, config.schedule.name) == (5.0, "cosine")
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (0.01, 1e-4)


def test_the_six_settings_of_the_table():
    by_name = {name: each.optimizer for name, each in configs("optimisers").items()}
    assert len(by_name) == 42
    settings = {
        name.removesuffix("-gce"): (
            each.name,
            each.lr,
            each.delta if each.name == "adam_caffe" else None,
        )
        for name, each in by_name.items()
        if name.endswith("-gce")
    }
    assert settings == {
        "sgd": ("sgd", 0.01, None),
        "momentum": ("momentum", 0.01, None),
        "nesterov": ("nesterov", 0.01, None),
        "adam-0.01-0.1": ("adam_caffe", 0.01, 0.1),
        "adam-0.005-0.1": ("adam_caffe", 0.005, 0.1),
        "adam-0.005-1": ("adam_caffe", 0.005, 1.0),
    }
    assert {by_name[name].momentum for name in ("momentum-cce", "nesterov-imae")} == {0.9}
    assert {each.weight_decay for each in by_name.values()} == {1e-4}


def test_each_candidate_alone_and_together_and_other_sizes():
    arguments = {name: each.method.arguments for name, each in configs("stability").items()}
    assert arguments["printed"] == {"T": 8.0}
    assert arguments["saturated"] == {"T": 8.0, "window_high": 16.0}
    assert arguments["normalised-bounded"] == {"T": 8.0, "normalize": "batch", "bound": 5.0}
    assert arguments["normalised-saturated-4"]["window_high"] == 4.0
    assert arguments["normalised-bounded-16"]["bound"] == 16.0
    assert set(arguments) == {
        "printed",
        "normalised",
        "saturated",
        "bounded",
        "normalised-saturated",
        "normalised-bounded",
        "saturated-bounded",
        "normalised-saturated-bounded",
        "normalised-saturated-8",
        "normalised-saturated-4",
        "normalised-bounded-16",
        "normalised-bounded-8",
        "authors",
    }


def test_t_is_chosen_on_held_out_labels_and_shown_beside_the_best(write_run, tmp_path):
    recipe = RECIPES.build("t_ablation")
    cells = recipe.cells("short")
    numbers = {"40-imae-16": (0.5, 0.4), "40-imae-8": (0.6, 0.45), "40-imae-4": (0.7, 0.3)}
    for cell in cells:
        if cell.name in numbers:
            test, held_out = numbers[cell.name]
            write_run(cell, cell.variants[0], 123, test=test, held_out=held_out, intact=test)
    (path,) = choose_t(tmp_path, outcomes(recipe, "short", tmp_path, {}))
    assert path.read_text().splitlines()[2:] == [
        "| 40% | IMAE | held-out given labels | 8 | 60.0 | 70.0 | 4 |",
        "| 40% | IMAE | training rows, true labels | 4 | 70.0 | 70.0 | 4 |",
    ]


def test_no_head_is_trained_twice_where_there_is_no_network():
    cells = RECIPES.build("t_ablation").cells("features")
    assert len({json.dumps(cell.settings, sort_keys=True) for cell in cells}) == len(cells)
    assert not any("resnet" in cell.name for cell in cells)
    assert "80-imae-4" in {cell.name for cell in cells}


def test_linear_scaling_is_tried_beside_mae():
    by_name = configs("t_ablation")
    for rate in (0, 40):
        factors = [
            each.method.arguments.get("factor")
            for name, each in by_name.items()
            if name.startswith(f"{rate}-mae")
        ]
        assert factors == [None, 2.0, 4.0, 8.0]


def test_trimming_with_imae_is_a_row_beside_trimming():
    by_name = configs("cifar10")
    plain, imae = (by_name[f"resnet20-40-trimmed{end}"] for end in ("", "_imae"))
    assert imae.method.arguments == {
        **plain.method.arguments,
        "loss": "imae:T=8",
        "normalize": "batch",
        "bound": 5.0,
        "warm_up": 0.5,
    }
    assert imae.model_copy(update={"method": plain.method}) == plain


def test_trimming_with_imae_is_tried_on_features_too():
    by_name = configs("cifar10", "features")
    for case in ("20", "40", "80", "asymmetric40"):
        arguments = by_name[f"{case}-trimmed_imae"].method.arguments
        assert (arguments["loss"], arguments["warm_up"]) == ("imae:T=8", 0.5)
        assert arguments["keep"] == by_name[f"{case}-trimmed"].method.arguments["keep"]


def test_the_form_of_the_authors_code_is_in_the_tables_about_imae():
    by_name = configs("t_ablation")
    for rate in (0, 40):
        for T in (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0):
            method = by_name[f"{rate}-imae_authors-{T:g}"].method
            assert (method.name, method.arguments) == ("imae_authors", {"T": T})
    authors = configs("stability")["authors"]
    assert (authors.method.name, authors.method.arguments) == ("imae_authors", {"T": 8.0})


def test_derivative_manipulation_has_the_lambda_of_the_comment():
    assert configs("cifar100_symmetric")["40-dm"].method.arguments == {"lam": 2.0}


def test_every_t_of_the_paper_is_there_on_clean_and_noisy_labels():
    names = {cell.name for cell in RECIPES.build("t_ablation").cells("paper")}
    for rate in (0, 40):
        for T in ("16", "8", "4", "2", "1", "0.5", "0"):
            assert f"{rate}-imae-{T}" in names


def test_every_method_under_every_set_of_human_labels():
    by_name = configs("cifar_n")
    assert len(by_name) == 6 * len(METHODS)
    assert by_name["worst-cce"].data.options == {"variant": "worst"}
    assert by_name["worst-cce"].noise is None
    assert by_name["fine-gce"].data.name == "cifar100n"
    assert by_name["fine-gce"].model.name == "resnet44"
    assert by_name["aggregate-co_teaching"].method.arguments == {"rate": 0.09}


def test_the_settings_are_the_papers():
    config = next(iter(configs("clothing1m").values()))
    assert (config.train.steps, config.train.batch_size) == (30_000, 84)
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (0.01, 2e-5)
    assert config.schedule.at == (10_000, 15_000)
    assert (config.model.name, config.noise) == ("resnet50", None)


def test_masking_has_a_structure_for_the_14_classes():
    arguments = configs("clothing1m")["masking"].method.arguments
    mask = Structure(arguments["structure"], groups=arguments["groups"]).mask(14)
    names = [CLASSES.index(name) for name in ("Knitwear", "Sweater", "Jacket")]
    assert mask[names[0], names[1]]
    assert not mask[names[0], names[2]]


def test_short_trains_on_frozen_features():
    config = next(iter(configs("clothing1m", "short").values()))
    assert config.data.features == "efficientnet_lite0"
