"""Plans: buckets of parts of gradients, each bucket with its own route.

`hocket.artefacts.plan_check` checks whether a plan is sound. Files of version 1 can still be read (`hocket.artefacts.upgrade`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.learning import Check
from hocket.artefacts.numbers import Amount, Factor, Ranks, Seconds, Share, Small
from hocket.artefacts.promise import Word

Codec = Literal["none", "f16", "bf16"]

OrderRule = Literal["given", "rack by rack", "fast first", "solved", "searched"]
GroupRule = Literal["racks", "hosts"]
OwnersRule = Literal[
    "all", "hosts by bandwidth", "fastest hosts", "rack leaders", "host leaders", "idle hosts", "one"
]
LinksRule = Literal["slow links", "links between hosts"]


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules by which order, groups, owners and links with a codec were chosen, to apply them to another cluster or world.

    None: unknown, or there are none.
    """

    order: OrderRule | None = None
    groups: GroupRule | None = None
    owners: OwnersRule | None = None
    links: LinksRule | None = None


class AllReduce(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="all_reduce"):
    """All-reduce: all ranks end with the mean. `sizes`: the numbers that the algorithm takes, such as the sizes of groups."""

    algorithm: str
    sizes: tuple[Share, ...] = ()


class Direct(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="direct"):
    """Direct traffic: all members push to the owners, and receive values from them."""


class TwoLevel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="two_level"):
    """Push and pull of a group through its first member. `stations`: sizes of the groups, of workers in the bucket's order."""

    stations: tuple[Ranks, ...]


class Owner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rank and its number of shares. A share is the bucket divided by the sum of all owners' shares."""

    rank: Small
    share: Small = 1


class Owned(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="owned"):
    """Route by owners, which reduce their shares, and send back means (`replicas` update) or updated values (`owners` update)."""

    owners: tuple[Owner, ...]
    update: Literal["replicas", "owners"] = "replicas"
    via: Direct | TwoLevel = Direct()


class Served(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="served"):
    """Route by servers, which hold the values. `staleness`: iterations by which the fastest worker may be ahead; None: any."""

    servers: tuple[Small, ...]
    staleness: Small | None = 0


class Gathered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gathered"):
    """Route of rows: all ranks get the rows that others touched, of `row_elements` each. `rows`: limit for one rank; an iteration
    with more uses the dense gradient."""

    rows: Amount
    row_elements: Amount
    algorithm: str = "ring"


class Traced(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="traced"):
    """Policy for this bucket alone."""

    policy: str
    parameters: dict[str, bool | int | float | str] = {}

    def __hash__(self) -> int:
        """Make it a key, as other routes are."""
        return hash((self.policy, frozenset(self.parameters.items())))


Route = AllReduce | Owned | Served | Gathered | Traced


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Elements `start` to `stop` of a flattened variable; None: to its end."""

    variable: str
    start: Amount = 0
    stop: Amount | None = None


class Bucket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of one element type that travel together, in the order in which they lie in the bucket.

    `order[logical]` is the rank that plays logical rank `logical`. Lower `priority` goes first. `cards`: indices of network cards
    that the bucket may use; None: all. `codec` is used on `codec_links`, ordered pairs of ranks. `chunk_bytes`: the pipelining
    unit.
    """

    parts: tuple[Part, ...]
    elements: Amount
    dtype: str
    route: Route
    order: tuple[Small, ...]
    priority: Small
    cards: tuple[Small, ...] | None = None
    codec: Codec = "none"
    codec_links: tuple[tuple[Small, Small], ...] = ()
    chunk_bytes: Amount = CHUNK_BYTES
    rule: Rule = Rule()

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables with elements in the bucket, each once, in the order in which they lie."""
        return tuple(dict.fromkeys(part.variable for part in self.parts))


class Ready(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ready"):
    """Launch as soon as the last gradient of the turn is there."""


class Begun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="begun"):
    """Launch at a point of an iteration of the period; of launches there, those of lower `place` go first."""

    iteration: Amount
    point: Literal["begin", "backward_end"]
    place: Amount = 0


class Due(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Application at the end of an iteration of the period, or at the gates of the forward after it."""

    iteration: Amount
    at: Literal["end", "gate"] = "end"


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gradients of iterations `first` to `last`, summed, sent once and applied once. `first` is of the period, `last` perhaps of
    the next one."""

    first: Amount
    last: Amount
    sent: Ready | Begun = Ready()
    due: Due


class Outer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optimizer of an anchor: SGD on the mean of what ranks have moved since the last exchange. The defaults take the mean of the
    ranks' parameters; DiLoCo (Douillard et al. 2023) has a rate of 0.7 and Nesterov's momentum of 0.9. `mix`: share of a rank's own
    parameters beside the anchor as it goes on from an exchange; None: the anchor, and all that it has stepped since. `weights`: by
    what a rank's progress counts: all alike, by samples since its last exchange, or by what the script logs. `paced`: between
    exchanges, ranks make as many steps as their speed lets them; else, all make the same number. `grace_s`: how long an exchange
    waits for ranks that do not come, once `quorum` ranks have come (None: one); None: as long as any step. `grows`: ranks begin
    with the fewest steps alone of the plan's safer schedules, and make more while exchanges keep what ranks gain. `inside`: ranks
    of each site, which average their gradients in every step and so move alike; none: each rank steps by itself.
    """

    rate: Factor = 1.0
    momentum: Factor = 0.0
    nesterov: bool = False
    mix: Factor | None = None
    weights: Literal["ranks", "samples", "logged"] = "ranks"
    paced: bool = False
    grace_s: Seconds | None = None
    quorum: Amount | None = None
    grows: bool = False
    inside: tuple[tuple[Small, ...], ...] = ()


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times at which buckets travel and are applied, over a period of iterations.

    `turns`, by bucket; none: every gradient in its own iteration. `together`: all buckets have the same turns. `rate`: factor of
    the learning rate for k merged iterations: k, its root, or 1. `steps`: a turn is one step of the optimizer; or k steps of an
    anchor, ahead of which each rank trains by its own gradients (then, `rate` is divided among the k steps); or `local`: ranks step
    alone, what travels is how far they came in a turn, and `outer` steps the anchor with the mean of that. `delay_max`: in
    iterations.
    """

    period: Amount = 1
    overlap: Literal["barrier", "gates"] = "barrier"
    together: bool = True
    turns: tuple[tuple[Turn, ...], ...] = ()
    rate: Literal["linear", "sqrt", "one"] = "one"
    steps: Literal["one", "own first", "local"] = "one"
    outer: Outer | None = None
    delay_max: Amount = 0


class Candidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choice that the planner scored. `simulated_step_s`: time simulated message by message, if it was. `measured_step_s` is filled
    in by runs that measured it.
    """

    label: str
    predicted_step_s: Seconds
    simulated_step_s: Seconds | None = None
    measured_step_s: Seconds | None = None


class Sensitivity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Predicted time of a plan if the rates of some links are `factor` times the given ones, and that of the best candidate."""

    links: str
    factor: Factor
    step_s: Seconds
    best_step_s: Seconds
    best: str


class Refused(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Schedule that would have been faster, and the guard's checks of it, of which one at least failed."""

    label: str
    predicted_step_s: Seconds
    checks: tuple[Check, ...]


class Evidence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reasons for this plan: seconds of a step as predicted, and the bound that no plan can beat on these links; digests of its
    inputs, by kind (`cluster`, `profile`, `tuning`); the other scored candidates; its cost if rates are off; the guard's checks of
    its schedule, and the schedules that failed them. `efficiency`: share of a synchronous iteration's progress that one of its
    schedule makes; None: not known, and counted as 1.
    """

    predicted_step_s: Seconds | None = None
    bound_step_s: Seconds | None = None
    evaluations: Amount = 0
    digests: dict[str, str] = {}
    candidates: tuple[Candidate, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    checks: tuple[Check, ...] = ()
    refused: tuple[Refused, ...] = ()
    efficiency: Factor | None = 1.0

    @property
    def gap(self) -> float | None:
        """Distance of the prediction above the bound, as a fraction of the bound."""
        if self.predicted_step_s is None or not self.bound_step_s:
            return None
        return self.predicted_step_s / self.bound_step_s - 1


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plan that every rank of the job compiles to the same programs.

    `workers` are the ranks that compute; the others of the `world` only own or serve. `safer`: schedules to which a training that
    goes wrong retreats, one after the other, before it goes on synchronously. A schedule with turns was made for iterations of
    `accumulation` backwards of `batch` samples a rank; None: unknown. `label` names the choice, `reason` says in a sentence
    why.
    """

    version: int = 2
    world: Ranks
    workers: tuple[Small, ...]
    buckets: tuple[Bucket, ...]
    schedule: Schedule = Schedule()
    safer: tuple[Schedule, ...] = ()
    batch: Amount | None = None
    accumulation: Amount | None = None
    promise: Word
    evidence: Evidence = Evidence()
    label: str
    reason: str

    @property
    def predicted_step_s(self) -> float:
        """Prediction of the evidence; 0 if there is none."""
        return self.evidence.predicted_step_s or 0.0
