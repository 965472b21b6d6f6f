"""Names beside the turns that `crates/executor/src/readiness/properties.rs` tests."""

import doctest
from types import SimpleNamespace

from hocket.training.memory import turns as module
from hocket.training.memory.turns import Unmade


def test_a_parameter_is_dropped_only_where_no_iteration_made_its_gradient():
    """The optimizer would move a parameter by nothing, or leave out a gradient that one iteration made."""
    unmade = Unmade()
    merged, next_turn = (SimpleNamespace(arena=0, slot=slot) for slot in (0, 1))
    for turn, names in ((merged, "ab"), (merged, "bc"), (next_turn, "a")):
        unmade.ended([turn])
        assert unmade.counts
        unmade.counted(names)
        assert not unmade.counts
    assert [unmade.taken(turn) for turn in (merged, next_turn)] == [{"b"}, {"a"}]
    unmade.ended([merged])
    unmade.counted("d")
    assert unmade.taken(merged) == {"d"}, "the slot has another turn now"


def test_examples():
    """The documentation would be wrong."""
    assert doctest.testmod(module).failed == 0
