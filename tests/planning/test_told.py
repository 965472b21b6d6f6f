"""Questions and answers of the planner as JSON: fields that one language alone knows, and floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket import _native
from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.plan import AllReduce, TwoLevel
from hocket.artefacts.profile import Bus
from hocket.errors import UsageError
from hocket.planning import told
from hocket.planning.links import link_graph
from tests.planning.planner_inputs import alternating

GRAPH = link_graph(alternating(hosts=4), 4).native
ORDER, PAIRS = (0, 2, 1, 3), ((0, 1), (2, 3))
OWNERS = told.Shares((3, 0, 1, 0), 4, TwoLevel(stations=(1, 3)))
EXCHANGES: dict[str, told.Exchange] = {
    "all-reduce": AllReduce(algorithm="two_level", sizes=(2, 2)),
    "owners": OWNERS,
    "rows": told.Rows("direct", 0.1, 16.0, table=True),
    "program": told.Messages(64, [(0, 1, 32, 16, 2), (1, 0, 64, 0, 1)], 2, 0.5),
}
SETTING = told.Setting(
    racks=(0, 0, 1, 1),
    workers=4,
    orders=[("given", None, (0, 1, 2, 3)), ("solved", Algorithm("two_level", (2, 2)), ORDER)],
    codecs=[(2, PAIRS)],
    chunk_bytes=1 << 18,
    shared_chunk_bytes=1 << 23,
    admitted=frozenset({"ring"}),
    searched=False,
    seed=1,
    given=[told.Proposal(OWNERS, ORDER, "given plan", 65536.0, 0, PAIRS)],
)
BUS = Bus(down_bytes_per_s=12e9, up_bytes_per_s=11e9, copy_s=1e-5)
MODEL = told.Model([(5000, 0, 0.1), (400, 1, 0.2)], [(4, None), (4, (0.1, 16.0, True))], 0.3, 0.4, BUS)


def solved(setting: Any = SETTING, model: Any = MODEL, given: Any = ()) -> told.Solution:
    return _native.solve_plan(GRAPH, setting, model, factors=[], evaluations=0, splits=False, given=given)


def others(tree: Any) -> Iterator[Any]:
    """The tree without one of its fields that must be there, or with another one, at any depth."""
    if isinstance(tree, dict):
        optional = {"codec", "codec_links", "sizes", "admitted", "bus"}
        yield from ({key: tree[key] for key in tree if key != left} for left in tree.keys() - optional)
        if tree.get("type") != "owned":  # The crate is given owners alone, too, and knows no `type` there.
            yield {**tree, "speed": 1}
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from (
                {**tree, key: other} if isinstance(tree, dict) else [*tree[:key], other, *tree[key + 1 :]]
                for other in others(value)
            )


def test_a_question_with_other_fields_is_refused() -> None:
    """Broken: a field that one language gained would be ignored by the other."""
    bucket = told.Chosen([(0, 0, 5000)], 0)
    [same] = [each for each in solved(given=[[bucket]]).proposals if each.rule == "given plan"]
    assert same == SETTING.given[0]
    for at, each in enumerate((SETTING, MODEL, bucket)):
        for other in others(msgspec.to_builtins(each)):
            with pytest.raises(UsageError, match=r"speed|missing field"):
                solved(**({"setting": other}, {"model": other}, {"given": [[other]]})[at])


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_a_route_with_other_fields_is_refused(exchange: told.Exchange) -> None:
    """Broken: a way to send gradients would be predicted as another one."""
    route: Any = told.Route(exchange, ORDER, 4, 256, (2, PAIRS))
    assert _native.PlanCost(GRAPH, [route]).alone_s(0, 4096) > 0
    for other in others(msgspec.to_builtins(route)):
        with pytest.raises(UsageError, match=r"speed|missing field"):
            _native.PlanCost(GRAPH, [other])


def test_a_way_to_owners_that_there_is_not_is_refused() -> None:
    """Broken: a damaged plan would send gradients by another way."""
    uphill: Any = {"type": "uphill"}
    with pytest.raises(UsageError, match="uphill"):
        _native.owned_parts(told.Shares((1, 1), 2, uphill), 4)


@settings(max_examples=200, deadline=None)
@given(st.floats(min_value=0, max_value=1e300))
def test_floats_cross_with_every_bit(step_s: float) -> None:
    """Broken: a prediction would depend on the language that asks."""
    model = told.Model([(4, 0, 0.0)], [(4, None)], 1e300, step_s)
    assert solved(model=model).step_s == step_s


@pytest.mark.parametrize("step_s", [float("inf"), float("nan")])
def test_what_json_cannot_have_is_refused(step_s: float) -> None:
    """Broken: an endless step would be taken for none."""
    with pytest.raises(UsageError, match="expected f64"):
        solved(model=msgspec.structs.replace(MODEL, step_s=step_s))
