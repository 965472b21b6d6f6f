"""Pairs of features that exclude one another, and what frameworks lack, with words of their errors, also for `docs/refused.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Literal, get_args

from hocket.errors import UsageError

AGAIN = "a model that is distributed again"
BESIDE_OWNERS = "changes of a plan in which owners update"
BUFFERS = "equal buffers"
DDP = "DDP over another backend"
DEVICE = "a model on a device"
ELASTIC = "elastic jobs"
EPOCHS = "handlers of timers and members"
FABRIC = "a fabric"
GIVEN = "ranks that another system numbers"
GATES = "gates"
GRACE = "a grace window in a job that is not elastic"
GRADIENTS = "functions of gradients in the script"
HELPERS = "helpers"
INSIDE = "steps together inside sites"
JOIN = "`join`"
KERAS = "a model of Keras"
LIBRARY = "a policy of a library"
LOCAL = "local steps"
MEANS = "buckets that are no means for all ranks"
NO_MEANS = "a policy without means"
OBSERVED = "decisions by what was observed"
OWNERS = "updates by owners"
PLAN = "a plan"
POLICY = "a policy"
PROFILE = "a profile of the script"
REORDER = "HOCKET_REORDER"
SEARCH = "a search for a plan"
SECOND = "a second model"
SERVERS = "parameter servers"
SHARES = "shares of batches"
SPARSE = "sparse gradients"
TLS = "HOCKET_TLS"
TURNS = "merged or late gradients"
WEIGHED_LATE = "weights of late exchanges"

Capability = Literal["members", "layers", "rows", "steps", "epochs", "optimizer", "compiled", "host"]
ABLE: frozenset[Capability] = frozenset(get_args(Capability))
"""Capabilities that a framework may have; PyTorch has all, but on a device not `host`."""

Features = Iterable[tuple[str, Mapping[str, object]]]
"""Features that are asked for, each with facts for the message."""

_NOT_ELASTIC = "an elastic job cannot have {}\nhint: leave one of them out; docs/elastic.md says what an elastic job can do"
_ALIKE = "hint: give every rank the same number of batches"

LACKS: dict[Capability, tuple[str, tuple[str, ...]]] = {
    "members": (
        _NOT_ELASTIC.format("gradients of {framework} yet: its state would be lost with a rank"),
        (ELASTIC,),
    ),
    "layers": (
        "{feature}: Hocket sees neither layers nor the parts of a step in {framework}\n"
        "hint: leave it out: a job without a plan finds one for its network as it starts",
        (SEARCH, REORDER, PROFILE, GATES),
    ),
    "rows": (
        "{feature}: {framework} makes dense ones\nhint: a plan without the route `gathered`",
        (SPARSE,),
    ),
    "steps": (
        "{feature}: Hocket does not see when the optimizer of {framework} steps\n"
        "hint: leave it out, and end the script's own loop",
        ("HOCKET_STEPS_MAX",),
    ),
    "epochs": (
        "{feature}: {framework} has no epochs, in which a policy changes\n"
        "hint: leave it out, or a loop of PyTorch's and hocket.torch",
        (EPOCHS, OBSERVED),
    ),
    "optimizer": (
        "{feature}: the optimizer of {framework} neither waits, nor steps in parts or on other ranks\n"
        "hint: leave it out, or a loop of PyTorch's and hocket.torch",
        (SERVERS, "HOCKET_STALENESS", HELPERS, OWNERS, TURNS, LOCAL, GATES, PROFILE),
    ),
    "compiled": (
        "the model has jit_compile=True, and a compiled step of {framework} calls neither hooks nor Hocket\n"
        "hint: model.compile(…, jit_compile=False)",
        ("jit_compile=True",),
    ),
    "host": (
        "{feature}: gradients of {framework} are not in the host's memory, and ranks that do not train have no device\n"
        "hint: leave it out, or keep the model on the CPU",
        (SERVERS, HELPERS),
    ),
}
"""Message by what a framework may lack, and the features that need it."""

_ELASTIC = {
    SERVERS: f"{SERVERS}: what a server holds would be lost with it",
    HELPERS: f"{HELPERS}: what they own is not dealt anew when one is lost",
    JOIN: f"{JOIN}: a rank without batches does not step, so the model would be lost with the last one that has some; "
    "hk.batches gives all equally many",
    LIBRARY: "a policy that calls {library}: its communicators are of all ranks, and wait for a lost one",
    INSIDE: f"{INSIDE}: a rank that is lost between two exchanges would leave some of its site with a mean that others lack",
    SECOND: f"{SECOND}: a step of one would stand and the same step of the other be undone",
    AGAIN: f"{AGAIN}: ranks that join would come with the first one",
}
_CLEAR = "HOCKET_TLS=1, but {what} sends in the clear\nhint: {instead}, or set HOCKET_TLS=0 if that may be"
_NOT_THE_MEAN = (
    "join: {policy} promises {contract}, not the mean of what ranks add: "
    f"it keeps or rounds what a finished rank would have to leave out\n{_ALIKE}"
)
_SEARCH_GIVEN = "a search for a plan, and {given} was given\nhint: leave one of them out"
_ALL_TRAIN = (
    "{}, but all ranks of {{whose}} train: those that do not would never come to its collectives\n"
    "hint: leave them out, or hk.distribute with all ranks, in a loop of your own"
)
_TOGETHER = "{what}: with parameter servers, workers push gradients, and do not step together\nhint: {hint}"

REFUSED: dict[tuple[str, str], str] = {
    **{(ELASTIC, each): _NOT_ELASTIC.format(said) for each, said in _ELASTIC.items()},
    (ELASTIC, BESIDE_OWNERS): (
        "an elastic job cannot have owners that update beside {what}: their parts would move while ranks may be lost\n"
        "hint: leave one of them out; docs/elastic.md says what an elastic job can do"
    ),
    (ELASTIC, GIVEN): (
        "HOCKET_COORDINATOR, but the ranks of {whose} stay as they are: its collectives would wait for a lost one\n"
        "hint: unset it, and go on from a checkpoint; hk.distribute with all ranks, in a loop of your own, trains on "
        "(docs/elastic.md)"
    ),
    (GRACE, DEVICE): (
        "local: grace_s={grace_s}: a thread sends what a late rank has, which is for models in the host's memory yet\n"
        "hint: `hocket run --elastic MIN:MAX`, whose exchanges stand without late ranks"
    ),
    (INSIDE, GRACE): (
        "local: inside, and grace_s={grace_s}: ranks of a site wait for one another in each step, and what a thread sends of a "
        "late one would not be what its site has\n"
        "hint: leave grace_s out; with paced=True, slow sites make fewer steps, and come in time"
    ),
    (INSIDE, WEIGHED_LATE): (
        "local: inside, late={late} and weights={weights}: ranks go on from what each of them has sent, which is rounded by its "
        "own weight, so those of a site would go apart\n"
        'hint: late=0, or weights="ranks"'
    ),
    (SERVERS, GIVEN): _ALL_TRAIN.format(SERVERS),
    (HELPERS, GIVEN): _ALL_TRAIN.format(HELPERS),
    (
        MEANS,
        TURNS,
    ): "{where}: merged and late gradients are means that all ranks have\nhint: leave one of them out",
    (HELPERS, TURNS): "{where}: helpers take part in each iteration\nhint: leave one of them out",
    (HELPERS, SERVERS): "{where}: ranks that do not train are one or the other\nhint: leave one of them out",
    (SERVERS, POLICY): (
        "policy {policy} and parameter servers: each would have all buckets\n"
        "hint: a plan says which buckets go by the policy and which are served"
    ),
    (SERVERS, GRADIENTS): _TOGETHER,
    (SERVERS, BUFFERS): _TOGETHER,
    (OWNERS, GRADIENTS): (
        "{what}: {named} is divided among its owners, of which this rank is one at most\n"
        "hint: hk.clip_grad_norm_(model, …) clips, and a plan in which all ranks update leaves gradients whole"
    ),
    (REORDER, POLICY): (
        "HOCKET_REORDER is for plans whose buckets have an order: a policy decides for itself\nhint: leave it unset"
    ),
    (SEARCH, PLAN): _SEARCH_GIVEN,
    (SEARCH, POLICY): _SEARCH_GIVEN,
    (JOIN, TURNS): (
        "join: gradients are merged or late, and a rank that has finished would leave turns of the others open\n"
        f"{_ALIKE}, or use a plan without merged or late gradients"
    ),
    (JOIN, SERVERS): (
        "join: parameter servers let workers finish one after the other by themselves, if no other bucket waits for them\n"
        f"{_ALIKE}"
    ),
    (JOIN, NO_MEANS): _NOT_THE_MEAN,
    (SHARES, TURNS): (
        "batches: with shares, gradients count by the samples of their step, and here they are summed over steps, or late\n"
        'hint: leave shares out; ranks that step alone count by hk.Local(weights="samples"), and then take shares'
    ),
    (SHARES, SERVERS): (
        "batches: with shares, the mean is of all ranks' samples, and parameter servers take each worker's gradients as they come\n"
        "hint: leave shares out: workers with a staleness make steps at their own speed"
    ),
    (SHARES, NO_MEANS): (
        "batches: with shares, the mean is of all ranks' samples, and {policy} promises {contract}\n"
        "hint: leave shares out, or use a plan"
    ),
    (TLS, LIBRARY): _CLEAR,
    (TLS, DDP): _CLEAR,
    (TLS, FABRIC): "payloads on a fabric are not encrypted: HOCKET_TLS and a fabric exclude each other",
}
"""Message by pair of features; names in braces are facts that the code adds."""


def refused(one: str, other: str, **facts: object) -> UsageError:
    """Return the error for a pair of features.

    >>> refused(HELPERS, TURNS, where="rank 3").summary
    'rank 3: helpers take part in each iteration'
    """
    return UsageError(REFUSED[one, other].format(**facts))


def check(one: str, features: Features) -> None:
    """Raise UsageError for the first feature that the table refuses beside `one`."""
    for other, facts in features:
        if (one, other) in REFUSED:
            raise refused(one, other, **facts)


def check_able(framework: str, able: Set[Capability], features: Features) -> None:
    """Raise UsageError for the first feature that needs what the framework is not able to do."""
    for feature, _ in features:
        for capability, (message, needing) in LACKS.items():
            if feature in needing and capability not in able:
                raise UsageError(message.format(framework=framework, feature=feature))
