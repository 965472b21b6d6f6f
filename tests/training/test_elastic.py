"""What an elastic job may have, and the plan of those that are left, without processes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Owned, Owner, Plan
from hocket.errors import UsageError
from hocket.planning.compile import programs
from hocket.planning.default import by_hosts, default_plan
from hocket.settings import Settings
from hocket.training.elastic.plans import following
from hocket.training.elastic.refusals import check_asked, check_plan


def plan(hosts: str) -> Plan:
    return default_plan([Gradient(name, (1000,), "f32") for name in "wxyz"], by_hosts(hosts))


@pytest.mark.parametrize("hosts", ["a", "aa", "ab", "aabb", "aab", "aba"])
def test_any_survivors_have_a_sound_plan_with_the_same_buckets(hosts: str) -> None:
    """Broken: some losses would end the job, with a program that the verifier refuses, or gradients in other memory."""
    before = plan("aabbcc")
    check_plan(before)
    after = following(before, hosts)
    check_plan(after)
    assert [bucket.parts for bucket in after.buckets] == [bucket.parts for bucket in before.buckets]
    assert (after.world, len(programs(after))) == (len(hosts), len(before.buckets))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"policy": "powersgd"}, "a policy"),
        ({"search": "20m"}, "a search"),
        ({"reorder": True}, "HOCKET_REORDER"),
        ({"servers": 1}, "parameter servers"),
        ({"helpers": 1}, "helpers"),
        ({"profile_out": "x"}, "a profile"),
    ],
)
def test_what_a_job_cannot_keep_after_a_loss_is_refused_by_name(asked: dict[str, Any], named: str) -> None:
    """Broken: the first loss would show that the job is not elastic."""
    with pytest.raises(UsageError, match=named):
        check_asked(Settings(**asked))


def test_plans_with_state_are_refused_by_name() -> None:
    """As above."""
    sound = plan("ab")
    bucket = sound.buckets[0]
    owned = replace(bucket, route=Owned(owners=(Owner(rank=0), Owner(rank=1))))
    for changed, named in (
        (owned, "bucket 0 is not an all-reduce"),
        (replace(bucket, codec="f16"), "rounded"),
        (replace(bucket, cards=(0,)), "cards"),
    ):
        with pytest.raises(UsageError, match=named):
            check_plan(replace(sound, buckets=(changed, *sound.buckets[1:])))
