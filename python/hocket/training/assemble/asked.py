"""Wishes of a script and its settings for the training of a model, checked, and compared between ranks before they act on them
together: a rank with other arguments would wait for what the others never do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from hocket.artefacts.local import Local, localized
from hocket.artefacts.needs import check_kept, needs_of, schedule_needs
from hocket.artefacts.plan import Plan, Traced
from hocket.artefacts.promise import EXACT, Promise, promise_of
from hocket.errors import UsageError
from hocket.job.alike import compare
from hocket.parameter_server.choice import ParameterServer
from hocket.planning.sites import with_sites
from hocket.policies.load import load
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.refusals import ELASTIC, INSIDE, MEANS, PLAN, POLICY, REORDER, SEARCH, TURNS, refused
from hocket.setting_values import seconds_of
from hocket.settings import Settings
from hocket.training.features import check_elastic_settings
from hocket.training.memory.scopes import Scope, scopes_of
from hocket.training.prepared import Stay
from hocket.training.process import Process


class Given(NamedTuple):
    """Arguments with which a script distributes its model.

    Attributes:
        plan: how gradients travel, from `workers_of`; None: one for the network.
        policy: instead of a plan.
        promise: allowed distance of results from DDP's; default: exact, or the promise of a given plan.
        search: how long the job tries plans while it trains; default: by the settings.
        local: ranks step alone, and exchange how far they came; default: by the plan.
    """

    plan: Plan | None = None
    policy: Policy | None = None
    promise: Promise | None = None
    search: str | None = None
    local: Local | None = None

    @property
    def policy_name(self) -> str | None:
        """Name of the policy's class; None: no policy was given."""
        return None if self.policy is None else type(self.policy).__name__


def policy_asked(plan: Plan | None, policy: Policy | None, settings: Settings) -> Policy | None:
    """Return the given policy, or without a plan the one that the settings name. UsageError: one of them has another type."""
    for what, given, kind, hint in (
        ("plan", plan, Plan, "hocket.artefacts.files.read(FILE, Plan), or HOCKET_PLAN=FILE without one here"),
        ("policy", policy, Policy, "an instance of its class, or HOCKET_POLICY=NAME without one here"),
    ):
        if given is not None and not isinstance(given, kind):
            raise UsageError(
                f"the {what} is of type {type(given).__name__}, not a {kind.__name__}\nhint: {hint}"
            )
    if policy is None and settings.policy is not None and plan is None:
        return load(settings.policy)
    return policy


def check_settings(
    policy: Policy | None,
    settings: Settings,
    *,
    parameter_server: ParameterServer | None = None,
) -> None:
    """Raise UsageError if a setting would have no effect beside the others, or cannot be in an elastic job."""
    if settings.coordinator is not None:
        check_elastic_settings(settings, servers=parameter_server is not None)
    if settings.reorder and policy is not None:
        raise refused(REORDER, POLICY)


def _search_asked(given: Given, settings: Settings) -> float | None:
    """Return the seconds that a search in training may take, given or by the settings; None: there is no search.

    UsageError: the text is no time, or nothing may be searched for.
    """
    text = settings.search if given.search is None else given.search
    settings.refuse_builder_without_search(searches=text is not None)
    if text is None:
        return None
    budget_s = seconds_of(text)
    if given.plan is not None:
        raise refused(SEARCH, PLAN, given=f"plan `{given.plan.label}`")
    if given.policy is not None:
        raise refused(SEARCH, POLICY, given=f"policy {given.policy_name}")
    return budget_s


def promise_asked(promise: Promise | str | None, settings: Settings) -> Promise | None:
    """Return the given promise, or the one that the settings name; None: none is asked for. UsageError: it cannot be kept."""
    given = settings.promise if promise is None else promise
    return None if given is None else promise_of(given)


class Wanted(NamedTuple):
    """Wishes of script and settings: see `Given`."""

    plan: Plan | None
    scopes: list[Scope]
    promise: Promise
    search_s: float | None
    local: Local | None


def wanted(given: Given, process: Stay, settings: Settings) -> Wanted:
    """Return what is asked for. UsageError: it does not go together, or promises less than is asked."""
    search_s = _search_asked(given, settings)
    plan, policy, promise, _, local = given
    if local is not None:
        if search_s is not None:
            raise refused(SEARCH, PLAN, given=f"local={local}")
        local = _with_sites(local, process)
        check_kept(promise, schedule_needs(local.schedule(local.fragments)), "local")
        plan = None if plan is None else localized(plan, local)
    if plan is not None:
        _check_world(plan, process)
        check_kept(promise, needs_of(plan), f"plan `{plan.label}`")
    scopes = _scopes(plan, policy)
    alone = local is not None or (plan is not None and plan.schedule.steps == "local")
    for scope in scopes:
        if alone and scope.policy.contract == "none":
            raise refused(MEANS, TURNS, where=f"policy {scope.route.policy}, which promises nothing")
        check_kept(promise, scope.needs, f"policy {scope.route.policy}")
    if scopes and settings.reorder:
        raise refused(REORDER, POLICY)
    return Wanted(plan, scopes, promise or EXACT, search_s, local)


def _with_sites(local: Local, process: Stay) -> Local:
    """Return how ranks step alone, with the ranks of each site. UsageError: sites are unknown, or a loss would divide them."""
    if local.inside is not None and process.elastic:
        raise refused(ELASTIC, INSIDE)
    cluster = process.measurements.network if local.inside == "rack" else None
    return with_sites(local, Topology.of(process.job.hosts, cluster))


def _check_world(plan: Plan, process: Stay) -> None:
    """Raise UsageError if the plan is for another number of ranks."""
    job = process.everyone
    if plan.world != job.world:
        raise UsageError(
            f"the plan is for {plan.world} ranks, the job has {job.world}\nhint: make a new plan"
        )
    if len(plan.workers) != process.job.world:
        raise UsageError(
            f"{len(plan.workers)} ranks of the plan train, and {process.job.world} of the job\n"
            "hint: as many parameter servers, or helpers, as the plan has"
        )


def _scopes(plan: Plan | None, policy: Policy | None) -> list[Scope]:
    if plan is not None:
        return scopes_of(plan, policy)
    return [] if policy is None else [Scope(Traced(policy=type(policy).__name__), policy)]


def agree_on_call(process: Process, asked: Mapping[str, object], *, call: str = "distribute") -> None:
    """Compare the arguments of a `call`; called by all ranks of the job that know its model. Newcomers compare theirs later.

    RendezvousError: the arguments differ; on all ranks it names arguments, values and ranks.
    """
    job = process.everyone
    mine = {name: _named(value) for name, value in asked.items() if value is not None}
    # Ranks that serve or help since an earlier call make no other one.
    trains = min(process.job.world, job.world - job.settings.besides)
    if process.is_newcomer or job.rank >= trains:
        return
    given = job.store.gather(f"{call} of {trains}", job.rank, trains, mine, job.settings.start_timeout_s)
    compare(given, job.hosts, defaults={}, hint=f"give `{call}` the same arguments on all ranks")


def _named(value: object) -> str:
    if isinstance(value, Plan):
        return f"{value.label} ({hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:8]})"
    return type(value).__name__ if isinstance(value, Policy) else str(value)
