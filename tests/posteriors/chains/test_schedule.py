"""When chains step, are stirred and are sampled, to the step."""

import math

import pytest

from demur.posteriors.chains.schedule import Schedule


def test_the_cycles_of_zhang_et_al() -> None:
    """CIFAR-10: 4 cycles of 50 passes, noise in the last 5, a sample after each of the last 3."""
    each = 782  # batches of 64 in a pass over 50,000
    schedule = Schedule(
        steps=200 * each, samples=12, step_size=0.5, cycles=4, exploration=0.9, discard=0.4, cosine=True
    )
    noisy = [step // each for step in range(200 * each) if schedule.has_noise(step)]
    assert sorted(set(noisy)) == [50 * cycle + epoch for cycle in range(4) for epoch in range(45, 50)]
    assert len(noisy) == 20 * each
    assert [schedule.find_step(k) / each for k in range(12)] == [
        50 * cycle + epoch for cycle in range(4) for epoch in (48, 49, 50)
    ]
    assert schedule.rate(0) == schedule.rate(50 * each) == 0.5
    assert schedule.rate(25 * each) == pytest.approx(0.25, rel=1e-12)
    assert schedule.rate(50 * each - 1) == pytest.approx(0.25 * (1 - math.cos(math.pi / (50 * each))))
    assert 0 < schedule.rate(200 * each - 1) < 1e-9


def test_a_cycle_step_by_step() -> None:
    schedule = Schedule(
        steps=20, samples=4, step_size=1.0, cycles=2, exploration=0.3, discard=0.3, cosine=True
    )
    assert [schedule.has_noise(step) for step in range(20)] == ([False] * 3 + [True] * 7) * 2
    assert schedule.first == 5  # 3 explored, and 2 of 7 discarded
    assert [schedule.find_step(k) for k in range(4)] == [7, 10, 17, 20]
    found = [schedule.rate(step) for step in range(20)]
    assert found == [0.5 * (math.cos(math.pi * k / 10) + 1) for k in range(10)] * 2


def test_a_plain_chain() -> None:
    schedule = Schedule(steps=800, samples=750, step_size=0.1, discard=0.0625)
    assert [schedule.find_step(k) for k in (0, 1, 749)] == [51, 52, 800]
    assert {schedule.rate(step) for step in range(800)} == {0.1}
    assert all(schedule.has_noise(step) for step in range(800))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 5}, r"samples must be a multiple of cycles, .* Got 5 samples in 2 cycles"),
        ({"steps": 21}, r"steps must be a multiple of cycles, .* Got 21 steps in 2 cycles"),
        ({"samples": 0}, "samples must be a positive integer. Got 0"),
        ({"cycles": 1.5}, "cycles must be a positive integer. Got 1.5"),
        ({"step_size": math.inf}, "step_size must be positive and finite. Got inf"),
        ({"step_size": -0.1}, "step_size must be positive and finite"),
        ({"exploration": 1.0}, "exploration must be at least 0 and below 1. Got 1.0"),
        ({"discard": -0.1}, "discard must be at least 0"),
        ({"samples": 18}, "Got 9 samples in 8 steps that are left for them in a cycle of 10"),
    ],
)
def test_schedules_that_make_no_sense(change, message) -> None:
    right = {"steps": 20, "samples": 4, "step_size": 1.0, "cycles": 2, "exploration": 0.2, "discard": 0.0}
    Schedule(**right)
    with pytest.raises(ValueError, match=message):
        Schedule(**(right | change))
