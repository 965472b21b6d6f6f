"""Where gradients lie whose parts travel in different buckets."""

from __future__ import annotations

import random

import pytest

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Part
from hocket.training.memory.arenas import arenas_of, arranged
from tests.support.random_plans import random_plan

GRADIENTS = {f"p{at}": Gradient(f"p{at}", (size,), "f32") for at, size in enumerate([1, 7, 40, 3, 12, 0])}


@pytest.mark.parametrize("seed", range(200))
def test_each_element_has_one_place_and_every_bucket_its_own(seed: int) -> None:
    """Broken: two gradients would share memory, or a bucket would reduce elements of another one."""
    plan = arranged(random_plan(random.Random(seed), list(GRADIENTS.values()), 3), GRADIENTS)  # noqa: S311
    turned = dict(reversed(GRADIENTS.items()))
    assert arranged(plan, turned) == plan, "it depends on the order in which gradients are named"
    parts = [bucket.parts for bucket in plan.buckets]
    arenas = arenas_of(parts, GRADIENTS)
    assert sorted(number for arena in arenas for number in arena.numbers) == list(range(len(parts)))
    names = [each.name for arena in arenas for each in arena.gradients]
    assert sorted(names) == sorted(GRADIENTS)
    for arena in arenas:
        reduced = [at for number in arena.numbers for run in arena.runs(parts[number]) for at in range(*run)]
        assert sorted(reduced) == list(range(sum(each.elements for each in arena.gradients)))
        for number in arena.numbers:
            sizes = sum(stop - start for start, stop in arena.runs(parts[number]))
            assert sizes == plan.buckets[number].elements


def test_neighbours_need_no_packing() -> None:
    """Broken: a variable that is cut in two between neighbouring buckets would be copied in each step."""
    cut = [
        [Part(variable="p0", stop=1), Part(variable="p2", stop=25)],
        [Part(variable="p2", start=25, stop=40), Part(variable="p1", stop=7)],
    ]
    for parts in (cut, cut[::-1]):
        (arena,) = arenas_of(parts, GRADIENTS)
        assert [len(arena.runs(each)) for each in parts] == [1, 1]
    apart = [
        [Part(variable="p2", stop=10), Part(variable="p2", start=20, stop=40)],
        [Part(variable="p2", start=10, stop=20)],
    ]
    (arena,) = arenas_of(apart, GRADIENTS)
    assert [arena.runs(each) for each in apart] == [((0, 10), (20, 40)), ((10, 20),)]
