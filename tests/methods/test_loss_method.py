import torch
from torch.nn import functional

from imae.methods import LossMethod, Rows


def test_it_gives_a_loss_for_each_row():
    logits, target = torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([0, 1])
    losses = LossMethod(functional.cross_entropy)(Rows(logits, target, torch.arange(2)))
    torch.testing.assert_close(losses, functional.cross_entropy(logits, target, reduction="none"))
