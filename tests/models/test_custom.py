import copy
import sys

import pytest
import torch
from torch import Tensor, nn

from imae.errors import ArgumentError
from imae.models.network import CustomNetwork, Network, build_custom

MODULE = """
from torch import nn
from imae.models.small import MLP

not_a_function = 3

def network(num_classes):
    return MLP(num_classes=num_classes, in_features=4)

def module(num_classes, width=8):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, num_classes))

def nothing(num_classes):
    return [num_classes]

def without_classes(width=8):
    return nn.Linear(4, width)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_networks.py").write_text(MODULE)
    (tmp_path / "broken_networks.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / "misspelt_networks.py").write_text("def network(:\n")
    yield "own_networks"
    for name in ("own_networks", "broken_networks", "misspelt_networks"):
        sys.modules.pop(name, None)


def plain(num_classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, num_classes), nn.Identity()
    )


def test_features_of_a_plain_module_are_the_input_of_its_last_linear_layer():
    body, x = plain(), torch.randn(5, 2, 2, generator=torch.Generator().manual_seed(0))
    network = CustomNetwork(body, num_classes=3)
    features, logits = network.features_and_logits(x)
    assert torch.equal(features, body[:3](x))
    assert torch.equal(logits, body(x))
    assert torch.equal(network(x), logits)
    assert torch.equal(network.features(x), features)
    assert network.classifier is body[3]


def test_features_carry_gradients():
    body = plain()
    CustomNetwork(body, num_classes=3).features(torch.ones(2, 4)).sum().backward()
    assert body[1].weight.grad.any()
    assert body[3].weight.grad is None


def test_no_hook_stays_and_a_failing_pass_leaves_none():
    body = plain()
    network = CustomNetwork(body, num_classes=3)
    network.features(torch.ones(2, 4))
    with pytest.raises(RuntimeError):
        network.features(torch.ones(2, 5))
    assert not body[3]._forward_pre_hooks


def test_a_copy_reads_its_own_layers():
    network = CustomNetwork(plain(), num_classes=3)
    other = copy.deepcopy(network)
    assert other.classifier is not network.classifier
    assert list(other.state_dict()) == list(network.state_dict())


def test_the_last_layer_is_in_the_state_dict_once():
    names = list(CustomNetwork(plain(), num_classes=3).state_dict())
    assert names == ["module.1.weight", "module.1.bias", "module.3.weight", "module.3.bias"]


def test_a_module_without_a_linear_layer_still_gives_logits():
    network = CustomNetwork(nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()), num_classes=3)
    assert network(torch.zeros(2, 1, 2, 2)).shape == (2, 3)
    with pytest.raises(ArgumentError, match=r"Sequential has no nn\.Linear with one output"):
        network.features(torch.zeros(2, 1, 2, 2))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) + self.fc(-x)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.unsqueeze(1)).mean(1)


@pytest.mark.parametrize(
    ("module", "got"), [(Twice(), r"\(2, 4\), \(2, 4\)"), (Tokens(), r"\(2, 1, 4\)")]
)
def test_features_that_are_not_one_row_an_input_are_refused(module, got):
    network = CustomNetwork(module, num_classes=3)
    assert network(torch.zeros(2, 4)).shape == (2, 3)
    with pytest.raises(ArgumentError, match=rf"'fc' of {type(module).__name__} .* got {got};"):
        network.features(torch.zeros(2, 4))


def test_a_network_comes_back_as_it_is_and_a_module_wrapped(own_module):
    assert type(build_custom(f"{own_module}:network", num_classes=3)).__name__ == "MLP"
    wrapped = build_custom(f"{own_module}:module", num_classes=3, width=5)
    assert isinstance(wrapped, Network)
    assert wrapped.classifier.in_features == 5


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own_networks:missing", "'own_networks' has no function 'missing'"),
        ("own_networks:", "has no function ''"),
        ("own_networks:not_a_function", "has no function 'not_a_function'"),
        ("own_networks:nothing", "must return a torch.nn.Module, got list"),
        ("own_networks:without_classes", "cannot be called with num_classes: .*num_classes"),
        ("absent_networks:network", "cannot import 'absent_networks' .*PYTHONPATH"),
        ("broken_networks:network", "No module named 'a_package_that_is_not_there'"),
        ("misspelt_networks:network", "cannot import 'misspelt_networks' .SyntaxError"),
        (":network", "cannot import ''"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_function_that_does_not_serve_is_one_clear_line(path, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        build_custom(path, num_classes=3)
    assert "\n" not in str(caught.value)
    assert f"model {path!r}" in str(caught.value)


def test_an_option_the_function_does_not_take_is_refused(own_module):
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'depth'"):
        build_custom(f"{own_module}:module", num_classes=3, depth=2)
