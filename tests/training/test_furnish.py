"""Programs that members and newcomers make before they meet: for which terms they hold."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hocket.artefacts.gradient import Gradient
from hocket.planning.default import by_hosts, default_plan
from hocket.training.assemble.furnish import Terms

PLAN = default_plan([Gradient("w", (4,), "f32")], by_hosts("ab"))
TERMS = Terms(plan=PLAN, policy=None, local=None, begin=(3, {}), search="20.0s")


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"search": "0.2s"}, True),
        ({"search": None}, False),
        ({"begin": (4, {})}, False),
        ({"begin": (3, {"plan": "other"})}, False),
        ({"plan": replace(PLAN, label="other")}, False),
        ({"plan": None}, False),
    ],
)
def test_programs_hold_as_long_as_what_they_follow_from(change: dict[str, Any], *, holds: bool) -> None:
    """Broken: ranks that meet would train by a plan that is out of force; or make programs anew for each second of a search."""
    later = replace(TERMS, **change)
    assert (TERMS.hold(later), later.hold(TERMS)) == (holds, holds)
