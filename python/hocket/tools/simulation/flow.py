"""Flow fidelity: every op of a plan's programs in virtual time, by the native flow engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hocket import _native
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Plan, Rule
from hocket.artefacts.profile import Bus, Profile
from hocket.errors import UsageError
from hocket.planning.compile import unverified
from hocket.planning.routes import name
from hocket.planning.rows import as_touched
from hocket.planning.traced import has_policies, topology_of
from hocket.policy.topology import Topology
from hocket.tools.simulation import on_cards, timelines
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.outcome import BucketSpan, LinkLoad, Outcome

LOADS_MAX = 64
"""Limit of links in an outcome: the busiest."""


@dataclass(frozen=True)
class Run:
    """Outcome, and its simulation, with records if they were requested. `parts`: by launch of a step, the part of a bucket."""

    outcome: Outcome
    simulation: _native.Simulation
    parts: Sequence[on_cards.Part]


@dataclass(frozen=True)
class Prepared:
    """Programs of a plan, each once, and each bucket's program. `bus`: that of each rank's device, if buckets are there."""

    programs: list[_native.Program]
    place: list[int]
    bus: Bus | None = None

    @classmethod
    def of(cls, plan: Plan, profile: Profile | None = None, network: Network | None = None) -> Prepared:
        """Prepare the parts of a simulation that do not depend on the network, unless a policy does. `profile` has the number of
        rows that a step touches, and the sparse gradients, whose rows are not added up to a table."""
        topology = None if network is None or not has_policies(plan) else topology_of(network)
        if profile is None:
            return cls(*_programs(plan, frozenset(), topology))
        sparse = frozenset(each.name for each in profile.gradients if each.sparse)
        touched, bus = as_touched(plan, profile), profile.bus
        return cls(*_programs(touched, sparse, topology, on_device=bus is not None), bus)

    def on(self, network: Network, costs: Costs) -> tuple[_native.Network, list[_native.SimulatedProgram]]:
        """Return the network with the routes that the programs use, and the programs on it."""
        native = network.native_for(self._pairs())
        cost = costs.native()
        compiled = (
            _native.SimulatedProgram.compile(each, native, cost, bus=self.bus) for each in self.programs
        )
        return native, list(compiled)

    def on_cards(self, network: Network, costs: Costs, parts: Sequence[on_cards.Part]) -> OnCards:
        """Return the network of all cards, and the program of each part on it."""
        whole, native = on_cards.together(network, self._pairs())
        cost = costs.native()
        numbers: dict[tuple[int, int, float], int] = {}
        place = [
            numbers.setdefault((self.place[bucket], card, share), len(numbers))
            for bucket, card, share in parts
        ]
        compiled = [
            _native.SimulatedProgram.compile(
                self.programs[program], native, cost, card=card, share=share, bus=self.bus
            )
            for program, card, share in numbers
        ]
        return OnCards(whole, native, compiled, place)

    def _pairs(self) -> Iterable[tuple[int, int]]:
        return (pair for program in self.programs for pair in program.pairs())


class OnCards(NamedTuple):
    """Network of all cards, programs of the parts, each once, and each part's program."""

    network: Network
    native: _native.Network
    programs: list[_native.SimulatedProgram]
    place: list[int]


def predict(
    plan: Plan,
    network: Network,
    profile: Profile,
    *,
    costs: Costs | None = None,
    conditions: Conditions | None = None,
    steps: int = 1,
    recorded: bool = False,
    prepared: Prepared | None = None,
) -> Run:
    """Run `steps` training steps of the plan. `prepared`: reuses the preparation of this plan.

    Raises UsageError when plan, profile and network do not fit, ProgramError for programs that cannot run, SimulationError when
    nothing moves any more: it names the ranks that are stuck, and why.
    """
    costs = costs or Costs()
    conditions = conditions or Conditions()
    if plan.world != network.world:
        raise UsageError(f"the plan is for {plan.world} ranks, the network has {network.world}")
    prepared = prepared or Prepared.of(plan, profile, network)
    parts = on_cards.parts_of(plan, network, profile)
    if on_cards.uses_cards(plan.buckets):
        network, native, compiled, place = prepared.on_cards(network, costs, parts)
    else:
        (native, compiled), place = prepared.on(network, costs), prepared.place
    steps = timelines.iterations(plan.schedule, steps)
    run_as = on_cards.launched(plan, parts)
    job = _native.SimulatedJob.scheduled(
        plan.world,
        run_as.schedule,
        [
            (program, bucket.priority, needed_s, _native.BUCKET_S + ready_s)
            for program, bucket, needed_s, ready_s in zip(
                place, run_as.buckets, *computation(run_as, profile), strict=True
            )
        ],
        backward_end_s=profile.forward_s + profile.backward_s,
        step_s=profile.step_s,
        count=steps,
        pace=_pace(plan, conditions),
        late_s=_late_s(plan, conditions),
    )
    simulation = run(
        native,
        compiled,
        job,
        network,
        rendezvous=costs.rendezvous,
        conditions=conditions,
        recorded=recorded,
    )
    return Run(_outcome(plan, network, profile, steps, simulation, parts), simulation, parts)


def _pace(plan: Plan, conditions: Conditions) -> list[float]:
    """Return factors on computation, one for all or by rank. Ranks that only own parameters have none, and start all their launches
    at once."""
    slow = dict(conditions.slow)
    if not slow and not conditions.paces and len(plan.workers) == plan.world:
        return [1.0]
    paces = conditions.paces or [1.0] * plan.world
    return [paces[rank] * slow.get(rank, 1.0) if rank in plan.workers else 0.0 for rank in range(plan.world)]


def _late_s(plan: Plan, conditions: Conditions) -> list[float]:
    """Return by how much each rank begins late; none where nobody does. UsageError: there is no such rank."""
    late = dict(conditions.late)
    if late and not set(late) <= set(range(plan.world)):
        raise UsageError(f"rank {max(late)} is late, and the plan has ranks 0 to {plan.world - 1}")
    return [late.get(rank, 0.0) for rank in range(plan.world)] if late else []


def _programs(
    plan: Plan, sparse: frozenset[str], topology: Topology | None, *, on_device: bool = False
) -> tuple[list[_native.Program], list[int]]:
    """Return programs, each once, and each bucket's program: similar buckets share one. `sparse`: names of sparse gradients.

    An all-reduce in place has no messages: it runs as `direct`, which moves the same bytes through the host's memory.
    """
    plan = msgspec.structs.replace(plan, buckets=tuple(_with_messages(bucket) for bucket in plan.buckets))
    found: dict[bytes, int] = {}
    programs: list[_native.Program] = []
    place = []
    for index, bucket in enumerate(plan.buckets):
        table = sparse.isdisjoint(bucket.variables)
        alike = msgspec.structs.replace(bucket, parts=(), priority=0, rule=Rule())
        key = msgspec.json.encode((alike, table or not isinstance(bucket.route, Gathered)))
        if key not in found:
            found[key] = len(programs)
            program = unverified(index, plan, table=table, topology=topology)
            # Rows are copied otherwise, and their copies not simulated.
            staged = on_device and not isinstance(bucket.route, Gathered)
            programs.append(program.staged(_native.PIECE_BYTES, []) if staged else program)
        place.append(found[key])
    return programs, place


def _with_messages(bucket: Bucket) -> Bucket:
    if name(bucket.route) != "in_place":
        return bucket
    return msgspec.structs.replace(bucket, route=AllReduce(algorithm="direct"))


def computation(plan: Plan, profile: Profile) -> tuple[list[float], list[float]]:
    """Return the times at which buckets are needed, with their first gradient, and ready, with their last.

    UsageError: the profile lacks one.
    """
    known = {gradient.name: gradient for gradient in profile.gradients}
    missing = [name for bucket in plan.buckets for name in bucket.variables if name not in known]
    if missing:
        raise UsageError(
            f"plan: gradient {missing[0]} is not in the profile\nhint: make the plan from this profile"
        )
    gradients = [[known[name] for name in bucket.variables] for bucket in plan.buckets]
    needed_s = [min((each.needed_s for each in bucket), default=0.0) for bucket in gradients]
    return needed_s, [max((each.ready_s for each in bucket), default=0.0) for bucket in gradients]


def run(
    native: _native.Network,
    programs: Sequence[_native.SimulatedProgram],
    job: _native.SimulatedJob,
    network: Network,
    *,
    rendezvous: bool,
    conditions: Conditions,
    recorded: bool,
) -> _native.Simulation:
    """Run the flow engine under these conditions. `native`: of `network`, whose links the conditions name.

    Raises UsageError for an unknown link, SimulationError when nothing moves any more.
    """
    return _native.simulate(
        native,
        programs,
        job,
        rendezvous=rendezvous,
        seed=conditions.seed,
        jitter=conditions.jitter,
        slow=list(conditions.slow),
        changes=_changes(conditions, network),
        recorded=recorded,
    )


def _changes(conditions: Conditions, network: Network) -> list[tuple[float, int, float]]:
    """Return rate changes for the flow engine: seconds, link, bit/s. UsageError for an unknown link."""
    numbers = {link.name: at for at, link in enumerate(network.links)}
    found = []
    for change in conditions.changes:
        if change.link not in numbers:
            some = ", ".join(f"`{name}`" for name in list(numbers)[:8])
            raise UsageError(f"there is no link `{change.link}`\nhint: links are {some}, …")
        found.append((change.at_s, numbers[change.link], change.bit_per_s))
    return found


def loads(network: Network, link_bytes: Sequence[float], end_s: float) -> tuple[LinkLoad, ...]:
    """Return the usage of links until the end, busiest first."""
    found = (
        LinkLoad(
            link=link.name, bit_per_s=link.bit_per_s, bytes=count, busy=count * 8 / link.bit_per_s / end_s
        )
        for link, count in zip(network.links, link_bytes, strict=True)
        if count > 0 and end_s > 0
    )
    return tuple(sorted(found, key=lambda load: -load.busy)[:LOADS_MAX])


def _outcome(  # noqa: PLR0917
    plan: Plan,
    network: Network,
    profile: Profile,
    steps: int,
    simulation: _native.Simulation,
    parts: Sequence[on_cards.Part],
) -> Outcome:
    # Ranks end before their last launches, for which they never wait.
    end_s = max([simulation.end_s, *(done_s for _, done_s in simulation.launches_s)])
    step_s = timelines.steady_s(simulation.phase_ends_s, plan.schedule)
    spans = [(math.inf, 0.0)] * len(plan.buckets)
    for part, (begun_s, done_s) in zip(parts, simulation.launches_s, strict=False):
        before = spans[part.bucket]
        spans[part.bucket] = min(before[0], begun_s), max(before[1], done_s)
    # Ranks that only own parameters are ready before those with gradients.
    _, ready_s = computation(plan, profile)
    return Outcome(
        fidelity="flow",
        network=network.title,
        world=plan.world,
        steps=steps,
        step_s=step_s,
        exposed_s=max(0.0, step_s - profile.step_s),
        buckets=tuple(
            BucketSpan(bucket=index, elements=bucket.elements, launched_s=max(span[0], ready), done_s=span[1])
            for index, (bucket, span, ready) in enumerate(zip(plan.buckets, spans, ready_s, strict=True))
        ),
        loads=loads(network, simulation.link_bytes, end_s),
        messages=simulation.messages,
        events=simulation.events,
    )
