import math

import pytest
import torch

from imae.methods.masking import Player

SIZES = (2, 3, 1)


def player(seed=0, activation=torch.sigmoid):
    return Player(SIZES, activation, torch.Generator().manual_seed(seed))


def test_the_layers_are_what_they_say():
    network = player()
    x = [0.5, -1.0]
    values = dict(network.named_buffers())
    hidden = [
        1 / (1 + math.exp(-sum(x[i] * float(values["value_0"][i, j]) for i in range(2))))
        for j in range(3)
    ]
    expected = sum(hidden[j] * float(values["value_2"][j, 0]) for j in range(3))
    assert float(network(torch.tensor([x]))) == pytest.approx(expected, rel=1e-5)


def test_start_weights_follow_from_the_seed_and_stay_within_their_limit():
    assert torch.equal(player(1).value_0, player(1).value_0)
    assert not torch.equal(player(1).value_0, player(2).value_0)
    wide = Player((200, 100), torch.relu, torch.Generator().manual_seed(0))
    limit = math.sqrt(6 / 300)
    assert 0.95 * limit < float(wide.value_0.abs().max()) <= limit
    assert wide.value_1.abs().sum() == 0


def test_improving_is_rmsprop():
    network, x = player(), torch.tensor([[0.5, -1.0], [2.0, 0.3]])
    values = [value.clone() for name, value in network.named_buffers() if "value" in name]
    squares = [torch.zeros_like(value) for value in values]
    for step in range(1, 5):
        network.improve(lambda leaves: network(x, leaves).square().mean(), 0.1)
        leaves = [value.clone().requires_grad_() for value in values]
        hidden = torch.sigmoid(x @ leaves[0] + leaves[1])
        (hidden @ leaves[2] + leaves[3]).square().mean().backward()
        for value, square, leaf in zip(values, squares, leaves, strict=True):
            square.mul_(0.9).add_(0.1 * leaf.grad**2)
            value.sub_(0.1 * leaf.grad / (square / (1 - 0.9**step) + 1e-10).sqrt())
    for index, value in enumerate(values):
        torch.testing.assert_close(network.get_buffer(f"value_{index}"), value)


def test_the_first_step_is_as_long_as_any_other_however_small_the_gradient():
    network, x = player(), torch.tensor([[0.5, -1.0]])
    before = network.value_3.clone()
    network.improve(lambda leaves: 1e-3 * network(x, leaves).sum(), 0.1)
    assert float(before - network.value_3) == pytest.approx(0.1, rel=1e-3)


def test_it_improves_where_gradients_are_off():
    network, x = player(), torch.ones(1, 2)
    before = float(network(x))
    with torch.no_grad():
        network.improve(lambda values: network(x, values).sum(), 0.1)
    assert float(network(x)) < before


def test_the_optimiser_of_a_run_does_not_see_it():
    network = player()
    assert list(network.parameters()) == []
    network.improve(lambda values: network(torch.ones(1, 2), values).sum(), 0.1)
    assert not any(buffer.requires_grad for buffer in network.buffers())


def test_a_restored_player_goes_on_as_it_was():
    x = torch.ones(1, 2)
    one, other = player(1), player(2)
    one.improve(lambda values: one(x, values).square().sum(), 0.1)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.improve(lambda values, each=each: each(x, values).square().sum(), 0.1)
    assert torch.equal(one(x), other(x))
