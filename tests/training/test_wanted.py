"""Which parts of the state a joining rank asks of whom, whatever sources it loses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hocket.training.elastic import wanted
from hocket.training.elastic.wanted import OPEN_BYTES, Wanted

Open = set[tuple[int, int]]


def noted(open_parts: Open, asks: list[tuple[int, list[int]]]) -> None:
    open_parts |= {(source, part) for source, parts in asks for part in parts}


@given(
    sizes=st.lists(st.integers(0, OPEN_BYTES * 2), min_size=1, max_size=30),
    trained=st.integers(0, 30),
    sources=st.integers(1, 4),
    draws=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6)), max_size=200),
)
def test_every_part_comes_from_a_source_that_is_there(
    sizes: list[int], trained: int, sources: int, draws: list[tuple[int, int]]
) -> None:
    """Broken: a joining rank would wait for ever for a part that a lost source owed, step parts whose gradients come no more, or
    have its sources copy more between two steps than they should."""
    machine = Wanted(sizes, min(trained, len(sizes)))
    trained = min(trained, len(sizes))
    open_parts: Open = set()
    here = list(range(sources))
    for source in here:
        noted(open_parts, machine.come(source))
    for kind, at in draws:
        if kind == 0 and len(here) > 1:
            lost = here.pop(at % len(here))
            open_parts = {each for each in open_parts if each[0] != lost}
            noted(open_parts, machine.lost(lost))
        elif open_parts:
            source, part = sorted(open_parts)[at % len(open_parts)]
            open_parts.remove((source, part))
            noted(open_parts, machine.given(source, part))
        for source in here:
            asked = [sizes[part] for own, part in open_parts if own == source]
            assert len(asked) <= 1 or sum(asked) <= OPEN_BYTES
        assert len({part for _, part in open_parts}) == len(open_parts), "a part is asked of two"
    while open_parts:
        source, part = open_parts.pop()
        noted(open_parts, machine.given(source, part))
    assert machine.complete
    assert all(machine.source_of[part] in here for part in range(trained))


def test_a_part_is_proved_by_a_step_and_a_digest() -> None:
    """Broken: a rank would join with an optimizer whose steps differ from the others', since none was compared."""
    machine = Wanted([1, 1, 1], 2)
    machine.come(0)
    for part in range(3):
        machine.given(0, part)
    for part in range(2):
        machine.prove(part)
    assert machine.complete
    assert not machine.proved
    machine.stepped(0)
    for part in range(2):
        machine.prove(part)
    assert machine.proved
    machine.lost(0)
    assert machine.source_of == {2: 0}, "what no step changes is kept"
    assert not machine.proved


def test_the_limit_is_that_of_one_source() -> None:
    """Broken: with several sources, each would be asked for less, or one for all."""
    machine = Wanted([wanted.OPEN_BYTES] * 4, 4)
    assert machine.come(7) == [(7, [0])]
    assert machine.come(8) == [(8, [1])]
    assert machine.given(8, 1) == [(8, [2])]
    assert machine.lost(8) == []
    assert machine.given(7, 0) == [(7, [1])]
