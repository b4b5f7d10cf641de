import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from imae.errors import ArgumentError
from imae.models.catalog import MODELS
from imae.models.network import Network, build, input_options

# Deeper and wider networks of the same class, which only the slow tests compute.
LARGER = {"resnet32", "resnet44", "resnet56", "resnet110", "efficientnet_lite1"}
NUM_CLASSES = 7


def tiny_shape(name: str) -> tuple[int, ...]:
    defaults = MODELS.find(name).defaults
    if "in_channels" not in defaults:  # for rows of numbers
        return (3, 2, 2)
    side = 64 if defaults["num_classes"] == 1000 else 16
    return (defaults["in_channels"], side, side)


def tiny_batch(name: str) -> Tensor:
    return torch.randn(4, *tiny_shape(name), generator=torch.Generator().manual_seed(0))


def make(name: str, seed: int = 0) -> Network:
    options = input_options(name, tiny_shape(name))
    return build(name, num_classes=NUM_CLASSES, seed=seed, **options)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in LARGER else ())
        for name in MODELS.names()
    ],
)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def network(name) -> Network:
    return make(name)


def test_every_parameter_receives_a_gradient(name, network):
    network.train().zero_grad()
    features, logits = network.features_and_logits(tiny_batch(name))
    assert features.shape == (4, network.classifier.in_features)
    assert logits.shape == (4, NUM_CLASSES)
    functional.cross_entropy(logits, torch.arange(4)).backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        # A bias before a batch norm has no effect, so vectors may have a gradient of 0.
        assert parameter.ndim == 1 or parameter.grad.any(), parameter_name


def test_logits_are_the_classifier_on_the_features(name, network):
    network.eval()
    x = tiny_batch(name)
    with torch.no_grad():
        features, logits = network.features_and_logits(x)
        assert torch.isfinite(logits).all()
        torch.testing.assert_close(network(x), logits)
        torch.testing.assert_close(network.features(x), features)
        torch.testing.assert_close(network.classifier(features), logits)
        torch.testing.assert_close(network(x[:1]), logits[:1], rtol=1e-3, atol=1e-4)


def test_channels_last_gives_the_same_logits(name, network):
    x = tiny_batch(name)
    network.eval()
    with torch.no_grad():
        expected = network(x)
        network.to(memory_format=torch.channels_last)
        actual = network(x.to(memory_format=torch.channels_last))
        network.to(memory_format=torch.contiguous_format)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_the_seed_alone_decides_the_weights(name, network):
    torch.rand(5)  # another global state than the one the first was made under
    again = make(name)
    pairs = zip(network.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_the_state_dict_carries_everything(name, network):
    network.eval()
    other, x = make(name, seed=4).eval(), tiny_batch(name)
    with torch.no_grad():
        assert not torch.equal(other(x), network(x))
        other.load_state_dict(network.state_dict())
        assert torch.equal(other(x), network(x))


def test_the_global_random_state_is_untouched():
    state = torch.get_rng_state()
    build("resnet20", num_classes=3, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_are_made_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        network = build("mlp", num_classes=3, seed=1)
    assert torch.equal(
        network.classifier.weight, build("mlp", num_classes=3, seed=1).classifier.weight
    )


def test_a_function_of_the_users_is_seeded_too():
    path = "imae.models.small:MLP"
    networks = [build(path, num_classes=3, seed=seed, in_features=4) for seed in (1, 1, 2)]
    first, again, other = (network.classifier.weight for network in networks)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_entry_says_what_it_is():
    for entry in MODELS:
        assert entry.summary
        assert entry.defaults["num_classes"] >= 2


@pytest.mark.parametrize(
    "counted", [entry.name for entry in MODELS if "M parameters" in entry.summary]
)
def test_counts_in_the_summaries_are_right(counted):
    words = MODELS.find(counted).summary.split()
    said = words[words.index("M") - 1]
    with torch.device("meta"):  # shapes alone
        network = MODELS.build(counted)
    count = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    assert f"{count:.{len(said.split('.')[1])}f}" == said


@pytest.mark.parametrize(
    ("num_classes", "seed"), [(1, 0), (0, 0), (2.0, 0), (True, 0), (2, -1), (2, 2**64), (2, 1.0)]
)
def test_bad_numbers_are_refused(num_classes, seed):
    with pytest.raises(ArgumentError, match=r"(num_classes|seed) must be"):
        build("mlp", num_classes=num_classes, seed=seed)


def test_the_smallest_numbers_are_taken():
    assert build("mlp", num_classes=2, seed=0).classifier.out_features == 2


def test_the_largest_seed_and_those_of_numpy_are_taken():
    assert build("mlp", num_classes=2, seed=2**64 - 1).classifier.out_features == 2
    plain, numpys = (build("mlp", num_classes=2, seed=seed) for seed in (3, np.int64(3)))
    assert torch.equal(plain.classifier.weight, numpys.classifier.weight)


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ArgumentError, match="unknown model 'resnet21'; did you mean resnet"):
        build("resnet21", num_classes=3)
    with pytest.raises(ArgumentError, match="takes num_classes, in_channels; got 'width'"):
        build("resnet20", num_classes=3, width=2)


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("resnet20", (1, 28, 28), {"in_channels": 1}),
        ("cnn8", (3, 28, 28), {"in_channels": 3, "image_size": 28}),
        ("mlp", (3, 4, 5), {"in_features": 60}),
        ("mlp", (9,), {"in_features": 9}),
        ("own.module:function", (9,), {}),
    ],
)
def test_options_that_follow_from_the_input(name, shape, options):
    assert input_options(name, shape) == options


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnet20", (64,), r"takes images and the inputs have shape \(64,\); use mlp"),
        ("cnn8", (3, 32, 30), "takes square images, got 32 x 30"),
        ("resnet", (3, 32, 32), "unknown model 'resnet'"),
    ],
)
def test_inputs_a_network_cannot_take_are_refused(name, shape, message):
    with pytest.raises(ArgumentError, match=message):
        input_options(name, shape)
