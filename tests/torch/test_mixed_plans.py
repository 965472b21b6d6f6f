"""Policies of one plan, each for its own buckets: `tests/sessions` has what any mix trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.artefacts.plan import AllReduce, Part, Plan, Traced
from hocket.errors import UsageError
from hocket.planning.buckets import plan_of
from hocket.policies import TopK
from hocket.training.memory.scopes import scopes_of
from tests.planning.test_plan_check import bucket
from tests.support import ranks

SCRIPTS = "tests.torch.mixed_scripts"


def test_two_policies_and_a_ring_share_a_step(tmp_path: Path) -> None:
    """Broken: a policy would be told another one's agreed values, or change buckets that do not go by it."""
    ended = ranks.run(f"{SCRIPTS}:two_policies", 2, tmp_path)
    assert ended.outcome.code == 0, ended.output
    for each in ended.returned:
        plain = {name: 1.0 for name in each["first"] if name != "2.weight"}
        assert each["first"] == pytest.approx(plain | {"2.weight": 2.0}, abs=1e-4)
        assert each["last"] == pytest.approx(plain | {"2.weight": 3.0}, abs=1e-4)
        assert each["agreed"]["Scaled.factor"] == 3.0
        assert each["agreed"]["top_k.share"] == 1.0


def mixed(*routes: Traced | AllReduce) -> Plan:
    return plan_of(
        [bucket(Part(variable=f"w{at}"), elements=1, route=route) for at, route in enumerate(routes)],
        3,
        label="",
    )


def test_each_policy_of_a_plan_has_names_of_its_own() -> None:
    """Broken: what is agreed of one policy would be taken for another's."""
    top_k = Traced(policy="top_k")
    tenth = Traced(policy="top_k", parameters={"share": 0.1})
    (alone,) = scopes_of(mixed(top_k, AllReduce(algorithm="ring"), top_k))
    assert alone.initial()["share"] == 0.01
    scopes = scopes_of(mixed(top_k, tenth, Traced(policy="int8")))
    agreed = {name: value for scope in scopes for name, value in scope.initial().items()}
    assert [agreed[name] for name in ("top_k#0.share", "top_k#1.share", "int8.block")] == [0.01, 0.1, 512]
    assert [scope.own(agreed).get("share") for scope in scopes] == [0.01, 0.1, None]


def test_policies_that_a_plan_cannot_have_are_refused_by_name() -> None:
    """Broken: a slip in a plan would train otherwise than it says, or end in a traceback in the first step."""
    ring = AllReduce(algorithm="ring")
    for plan, given, said in (
        (mixed(Traced(policy="topk")), None, "there is no policy `topk`"),
        (mixed(Traced(policy="top_k", parameters={"k": 3})), None, "policy top_k has no parameter `k`"),
        (mixed(ring), TopK(), "no bucket of the plan goes by policy TopK"),
        (mixed(Traced(policy="top_k")), TopK(), "no bucket of the plan goes by policy TopK"),
    ):
        with pytest.raises(UsageError, match=said):
            scopes_of(plan, given)
