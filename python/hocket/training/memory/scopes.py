"""Policies of a plan's buckets, each with its own agreed values among those of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.needs import Need
from hocket.artefacts.plan import Plan, Traced
from hocket.errors import UsageError
from hocket.planning.traced import policy_of
from hocket.policy.policy import DEFAULTS, Policy, Value

SEPARATOR = "."
"""Separator between a scope's name and a value's own name, which must not contain it."""


@dataclass(frozen=True)
class Scope:
    """Policy of some buckets. The job puts `prefix` before the names of its agreed values."""

    route: Traced
    policy: Policy
    prefix: str = ""

    @property
    def needs(self) -> tuple[Need, ...]:
        """Allowances of a promise that the policy needs."""
        return (Need("loss", "any", "its code may round or leave out anything"),)

    def own(self, agreed: Mapping[str, Value]) -> dict[str, Value]:
        """Return this policy's values among the job's agreed values, by the policy's own names.

        >>> Scope(Traced(policy="top_k"), Policy(), "top_k.").own({"top_k.share": 0.1, "int8.bits": 8})
        {'share': 0.1}
        """
        own = {
            name.removeprefix(self.prefix): each
            for name, each in agreed.items()
            if name.startswith(self.prefix)
        }
        return {name: each for name, each in own.items() if SEPARATOR not in name}

    def of_job(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the policy's values, by the job's names."""
        return {self.prefix + name: value for name, value in values.items()}

    def initial(self) -> dict[str, Value]:
        """Return the initial agreed values, by the job's names."""
        return self.of_job({**DEFAULTS, **self.policy.parameters, **self.route.parameters})


def scopes_of(plan: Plan, given: Policy | None = None) -> list[Scope]:
    """Return the policies of a plan, each once. `given`: stands for the policy with the name of its class.

    If a plan has a single policy, its agreed values keep their names. Raises UsageError: there is no such policy or parameter, or
    no bucket uses `given`.
    """
    routes: dict[bytes, Traced] = {}
    for bucket in plan.buckets:
        if isinstance(bucket.route, Traced):
            routes.setdefault(key(bucket.route), bucket.route)
    found = [Scope(route, policy_of(route, given)) for route in routes.values()]
    if given is not None and all(scope.policy is not given for scope in found):
        raise UsageError(
            f"no bucket of the plan goes by policy {type(given).__name__}\n"
            "hint: give one of them, or name the policy in the plan's buckets"
        )
    if len(found) < 2:
        return found
    times = Counter(scope.route.policy for scope in found)
    return [
        Scope(
            scope.route,
            scope.policy,
            _prefix(scope.route.policy, at if times[scope.route.policy] > 1 else None),
        )
        for at, scope in enumerate(found)
    ]


def initial(scopes: Sequence[Scope]) -> dict[str, Value]:
    """Return the initial agreed values of all scopes, by the job's names."""
    return {name: value for scope in scopes for name, value in scope.initial().items()}


def key(route: Traced) -> bytes:
    """Return a key that only equal routes share."""
    return msgspec.json.encode([route.policy, sorted(route.parameters.items())])


def _prefix(name: str, at: int | None) -> str:
    return (name if at is None else f"{name}#{at}").replace(SEPARATOR, "_") + SEPARATOR
