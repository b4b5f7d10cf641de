import pytest
import torch

from imae.train.config import ScheduleConfig
from imae.train.loop import factor, shortened


def factors(total, **settings):
    schedule = ScheduleConfig(**settings)
    return [factor(schedule, step, total) for step in range(total)]


def test_constant():
    assert factors(3, name="constant") == [1, 1, 1]


def test_dividing_at_steps_and_every_so_many():
    assert factors(5, name="steps", at=(2, 4)) == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert factors(5, name="steps", every=2, divide_by=2) == [1, 1, 0.5, 0.5, 0.25]


def test_cosine_is_that_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for mine in factors(10, name="cosine"):
        assert mine == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_one_cycle_rises_and_falls():
    rates = factors(101, name="one_cycle")
    assert rates[0] == pytest.approx(1 / 25)
    assert max(rates) == pytest.approx(1, abs=1e-3)
    assert 25 <= rates.index(max(rates)) <= 35
    assert 0 < rates[-1] < 1e-3


@pytest.mark.parametrize("name", ["constant", "cosine"])
def test_warm_up_rises_in_even_steps_to_the_full_rate(name):
    rates = factors(10, name=name, warm_up=3)
    assert rates[:3] == pytest.approx([0.25, 0.5, 0.75])
    assert rates[3] == pytest.approx(1)
    if name == "cosine":
        assert rates[9] == pytest.approx(factors(7, name="cosine")[6])


def test_a_stage_divides_at_the_same_parts_of_itself():
    by_step = shortened(ScheduleConfig(name="steps", at=(100, 200)), 0.5)
    assert [factor(by_step, step, 150) for step in (49, 50, 99, 100)] == [1, 0.1, 0.1, 0.01]
    assert shortened(ScheduleConfig(name="steps", every=10), 0.01).every == 1
    assert shortened(ScheduleConfig(name="cosine"), 0.5).at == ()
