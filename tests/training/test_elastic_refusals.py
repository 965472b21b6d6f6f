"""What elastic jobs do not do yet is refused in the user's words."""

import pytest
from msgspec.structs import replace

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Traced
from hocket.errors import UsageError
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.updating import by_owners
from hocket.training.features import check_elastic, runs_elastic


def test_sparse_gradients_are_refused_by_their_name():
    """A user of an embedding would be told that a bucket is neither an all-reduce nor a policy's, and not which layer to change."""
    gradients = [Gradient("head", (8,), "f32"), Gradient("words.weight", (100, 4), "f32", sparse=True)]
    plan = default_plan(gradients, by_hosts(["a", "b"]))
    with pytest.raises(UsageError, match=r"cannot have sparse gradients yet, and words\.weight") as refused:
        check_elastic(plan)
    assert "hint: sparse=False for its embedding" in str(refused.value)
    assert not runs_elastic(plan)
    check_elastic(default_plan(gradients[:1], by_hosts(["a", "b"])))


def test_owners_are_refused_beside_what_changes_their_plan():
    """Parts would move to other owners by an exchange that a lost rank leaves half done."""
    owned = by_owners(default_plan([Gradient("head", (8,), "f32")], by_hosts(["a", "b"])))
    check_elastic(owned)
    (bucket,) = owned.buckets
    mixed = replace(owned, buckets=(bucket, replace(bucket, route=Traced(policy="top_k"))))
    with pytest.raises(UsageError, match="owners that update beside a policy yet"):
        check_elastic(mixed)
    assert not runs_elastic(mixed)
