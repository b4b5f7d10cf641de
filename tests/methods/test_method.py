import torch
from torch import nn

from imae.methods import Facts, Method, Rows


class Memory(Method):
    """A method with a parameter, and a memory by row."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def start(self, facts):
        super().start(facts)
        self.register_buffer("seen", torch.zeros(len(facts.labels)))

    def forward(self, rows):
        self.seen[rows.row] += 1
        return self.factor * rows.logits.sum(1)


def facts(rows=3):
    return Facts(labels=torch.zeros(rows, dtype=torch.int64), num_classes=2, num_epochs=1, seed=0)


def rows():
    return Rows(torch.ones(2, 2), torch.tensor([0, 1]), torch.tensor([2, 0]))


def test_a_method_is_saved_and_restored():
    method = Memory()
    method.start(facts())
    assert method(rows()).tolist() == [2.0, 2.0]
    assert method.seen.tolist() == [1, 0, 1]
    other = Memory()
    other.start(facts())
    other.load_state_dict(method.state_dict())
    assert other.seen.tolist() == [1, 0, 1]
    assert [name for name, _ in method.named_parameters()] == ["factor"]


def test_hooks_do_nothing_of_themselves():
    method = Memory()
    method.start(facts())
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.start_epoch(0)
    method.share()
    method.end_epoch(0)
    assert all(torch.equal(before[name], each) for name, each in method.state_dict().items())
    assert (Method.needs_features, Method.num_networks) == (False, 1)


def test_one_rank_is_its_own_total():
    assert float(facts().total(torch.tensor(3.0))) == 3
