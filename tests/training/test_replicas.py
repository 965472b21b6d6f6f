"""When replicas are looked at, and what is said of those that differ."""

from __future__ import annotations

import itertools

import pytest

from hocket.training.memory.replicas import (
    ALLOWANCE_NS,
    PART_BYTES,
    PIECES_MAX,
    SHARE,
    Budget,
    Look,
    Piece,
    difference,
    parts_of,
)

HOSTS = ("a", "a", "b", "b")


@pytest.mark.parametrize(
    ("cost_ns", "step_ns"), [(20_000, 300_000), (100_000, 10**8), (5_000, 10**10), (10**7, 10**7)]
)
def test_looks_take_the_share_of_time_that_they_may(cost_ns: int, step_ns: int) -> None:
    """Training would be slower for a check that nobody asked for; or with time to spare, differences would be found late."""
    budget, now_ns, spent_ns, step, steps = Budget(0), 0, 0, 0, 20_000
    parts = 1
    while step < steps:
        now_ns = (step + 1) * step_ns
        spent_ns += cost_ns * parts
        wait, parts = budget.after(cost_ns * parts, parts, step + 1, now_ns)
        assert wait >= 1
        assert parts >= 1
        step += wait
    allowed_ns = ALLOWANCE_NS + SHARE * now_ns
    # A look begins before it is known what it costs.
    assert spent_ns <= allowed_ns + cost_ns
    assert spent_ns >= 0.9 * min(allowed_ns, steps * cost_ns) - 2 * cost_ns


def test_parts_have_every_byte_once() -> None:
    """A weight that is never looked at could differ for ever."""
    held = {f"p{at}": size for at, size in enumerate([7, 0, PART_BYTES - 7, 3 * PART_BYTES + 1] + [4] * 300)}
    parts = parts_of(held)
    assert all(0 < len(part) <= PIECES_MAX for part in parts)
    assert all(sum(piece.stop - piece.start for piece in part) <= PART_BYTES for part in parts)
    ends = dict.fromkeys(held, 0)
    for piece in itertools.chain(*parts):
        assert piece.start == ends[piece.name] < piece.stop
        ends[piece.name] = piece.stop
    assert ends == held


def test_the_odd_ranks_are_named_with_what_they_have() -> None:
    """The user would have to look for the weight in all layers of all ranks."""
    pieces = tuple(Piece(name, 0, 4) for name in "vwxyz")
    look = Look(117, pieces, (), (), 1)
    options = [{"lr": 0.1}, {"lr": 0.2}]
    shown = {
        0: ((1, 2, 3, 4, 5), options),
        1: ((1, 0, 3, 4, 5), options),
        3: ((0, 0, 0, 4, 0), [{"lr": 0.1}, {"lr": 0.3}]),
    }
    error = difference(look, shown, same=[0, 2], odd=[1, 3], hosts=HOSTS)
    assert (error.ranks, error.parameters, error.step) == ((1, 3), ("w", "v", "x", "z"), 117)
    assert error.summary == (
        "replicas differ after 117 steps: ranks 1, 3 on a, b have other values of `w`, `v`, `x` and 1 more than ranks 0, 2 on "
        "a, b; on rank 3 on b, `lr` of group 1 is 0.3, not 0.2 as on ranks 0, 2 on a, b"
    )
