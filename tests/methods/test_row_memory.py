import pytest
import torch

from imae.methods.method import RowMemory


def test_what_is_written_is_read_and_the_rest_stays():
    memory = RowMemory(torch.arange(6.0).view(3, 2))
    memory.write(torch.tensor([2, 0]), torch.tensor([[7.0, 8.0], [9.0, 10.0]]))
    assert memory.read(torch.tensor([0, 1, 2])).tolist() == [[9, 10], [2, 3], [7, 8]]


def test_the_start_values_are_not_shared_with_the_caller():
    start = torch.zeros(2)
    memory = RowMemory(start)
    memory.write(torch.tensor([0]), torch.tensor([1.0]))
    assert start.tolist() == [0, 0]
    read = memory.read(torch.tensor([1]))
    memory.write(torch.tensor([1]), torch.tensor([5.0]))
    assert read.tolist() == [0]


def test_values_lose_their_gradient_and_take_the_type_of_the_memory():
    memory = RowMemory(torch.zeros(2))
    memory.write(torch.tensor([1]), torch.ones(1, dtype=torch.float64, requires_grad=True))
    assert memory.values.dtype == torch.float32
    assert not memory.values.requires_grad


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_ranks_share_what_each_has_written(two_ranks, shape, dtype):
    start = torch.arange(4).view(-1, *(1,) * len(shape)).expand(4, *shape).to(dtype)

    def work(rank, total, _gather):
        memory = RowMemory(start)
        memory.write(torch.tensor([rank]), torch.full((1, *shape), 10 + rank, dtype=dtype))
        memory.share(total)
        # In the next epoch the rows change places.
        memory.write(torch.tensor([1 - rank]), 2 * memory.read(torch.tensor([1 - rank])))
        memory.share(total)
        memory.share(total)
        return memory.values

    first, second = two_ranks.run(work)
    assert torch.equal(first, second)
    assert first.view(4, -1)[:, 0].tolist() == [20, 22, 2, 3]


def test_zero_and_infinity_are_shared_as_they_are(two_ranks):
    def work(rank, total, _gather):
        memory = RowMemory(torch.ones(3))
        value = 0.0 if rank == 0 else torch.inf
        memory.write(torch.tensor([rank]), torch.tensor([value]))
        memory.share(total)
        return memory.values.tolist()

    assert two_ranks.run(work) == [[0, torch.inf, 1]] * 2


def test_a_saved_memory_has_the_values_alone_and_goes_on(two_ranks):
    def work(rank, total, _gather):
        memory = RowMemory(torch.zeros(2))
        memory.write(torch.tensor([rank]), torch.tensor([1.0 + rank]))
        memory.share(total)
        restored = RowMemory(torch.zeros(2))
        restored.load_state_dict(memory.state_dict())
        restored.write(torch.tensor([1 - rank]), torch.tensor([5.0 + rank]))
        restored.share(total)
        return list(memory.state_dict()), restored.values.tolist()

    assert two_ranks.run(work) == [(["values"], [6, 5])] * 2
