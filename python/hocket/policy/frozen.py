"""View of a policy for its traced handlers: they read its attributes, but store nothing that depends on statistics.

A stored value would survive into the next epoch, where no guard covers it.
"""

from __future__ import annotations

from hocket.policy import sources
from hocket.policy.observed import Assumptions
from hocket.policy.policy import Policy


def frozen(policy: Policy, assumptions: Assumptions) -> Policy:
    """Return a policy with the same attributes, under a class that refuses to set one after a statistic was used."""
    kind = type(policy)

    def refuse(name: str) -> None:
        if assumptions.looked:
            raise sources.refusal(
                f"{kind.__name__} keeps `{name}` after it looked at statistics: nothing would guard it later\n"
                "hint: ask again in each handler; what stays is an agreed value (`cx.agreed`) or `cx.state`"
            )

    class Frozen(kind):  # type: ignore[valid-type,misc]  # the user's own
        def __setattr__(self, name: str, value: object) -> None:
            refuse(name)
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            refuse(name)
            super().__delattr__(name)

    Frozen.__name__, Frozen.__qualname__ = kind.__name__, kind.__qualname__
    made: Policy = object.__new__(Frozen)
    made.__dict__ = policy.__dict__
    return made
