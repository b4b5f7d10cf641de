import pytest
import torch

from imae.methods import Method
from imae.methods.catalog import METHODS
from imae.models import build
from imae.train.learner import Learner

INPUTS, TARGET, ROW = torch.rand(4, 1, 6, 6), torch.tensor([0, 1, 2, 0]), torch.arange(4)


class Everything(Method):
    """Looks at all that a method can ask for."""

    needs_features = True
    num_networks = 2

    def forward(self, rows):
        self.seen = rows
        (other,) = rows.other_logits
        return rows.logits.sum(1) + other.sum(1)


def networks(number=1):
    return tuple(build("mlp", num_classes=3, in_features=36, seed=seed) for seed in range(number))


def test_the_logits_keep_their_gradient():
    learner = Learner(networks(), METHODS.build("cce"))
    losses = learner(INPUTS, TARGET, ROW)
    assert losses.shape == (4,)
    losses.sum().backward()
    p = learner.logits.detach().softmax(1).gather(1, TARGET[:, None]).squeeze(1)
    torch.testing.assert_close(learner.logits.grad.abs().sum(1), 2 * (1 - p))


def test_without_gradients_it_only_computes():
    learner = Learner(networks(), METHODS.build("cce"))
    with torch.no_grad():
        assert learner(INPUTS, TARGET, ROW).shape == (4,)


def test_a_method_gets_features_and_a_second_network():
    method = Everything()
    learner = Learner(networks(2), method)
    learner(INPUTS, TARGET, ROW).sum().backward()
    assert method.seen.features.shape == (4, 256)
    assert torch.equal(method.seen.inputs, INPUTS)
    assert torch.equal(method.seen.row, ROW)
    assert all(each.grad is not None for each in learner.parameters())
    assert learner.network is learner.networks[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_compiled_it_gives_the_same():
    plain = Learner(networks(), METHODS.build("cce"))
    compiled = Learner(networks(), METHODS.build("cce"), compiled=True)
    torch.testing.assert_close(compiled(INPUTS, TARGET, ROW), plain(INPUTS, TARGET, ROW))
