"""Pairs of features that exclude one another, and what frameworks lack, with words of their errors, also for `docs/refused.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Literal, get_args

from hocket.errors import UsageError

CARDS = "buckets on some cards alone"
DRIVEN = "HOCKET_REORDER, a search"
ELASTIC = "elastic jobs"
FLOW = "the flow engine"
GATES = "gates"
HELPERS = "helpers"
IDLE = "ranks that do not train"
JOIN = "`join`"
KERAS = "a model of Keras"
MEANS = "buckets that are no means for all ranks"
NO_AUTOPILOT = "HOCKET_AUTOPILOT=0"
OWNERS = "updates by owners"
PARAMETERS = "policies of parameters"
REORDER = "HOCKET_REORDER"
SEARCH = "a search for a plan"
SERVERS = "parameter servers"
TOGETHER = "clipping, equal buffers"
TURNS = "merged or late gradients"
UNORDERED = "a policy, ranks that do not train"

Capability = Literal["members", "layers", "rows", "steps", "optimizer", "compiled", "host"]
ABLE: frozenset[Capability] = frozenset(get_args(Capability))
"""Capabilities that a framework may have; PyTorch has all, but on a device not `host`."""

Features = Iterable[tuple[str, Mapping[str, object]]]
"""Features that are asked for, each with facts for the message."""

_LOST = (
    "an elastic job cannot have {} yet: its state would be lost with a rank\n"
    "hint: leave one of them out; docs/elastic.md says what an elastic job can do"
)
_ALIKE = "hint: give every rank the same number of batches"

LACKS: dict[Capability, tuple[str, tuple[str, ...]]] = {
    "members": (_LOST.format("gradients of {framework}"), (ELASTIC,)),
    "layers": (
        "{feature}: Hocket sees neither layers nor the parts of a step in {framework}\n"
        "hint: leave it out: a job without a plan finds one for its network as it starts",
        (SEARCH, REORDER, "a profile of the script", GATES),
    ),
    "rows": (
        "{feature}: {framework} makes dense ones\nhint: a plan without the route `gathered`",
        ("sparse gradients",),
    ),
    "steps": (
        "{feature}: Hocket does not see when the optimizer of {framework} steps\n"
        "hint: leave it out, and end the script's own loop",
        ("HOCKET_STEPS_MAX", PARAMETERS),
    ),
    "optimizer": (
        "{feature}: the optimizer of {framework} neither waits, nor steps in parts or on other ranks\n"
        "hint: leave it out, or a loop of PyTorch's and hocket.torch",
        (SERVERS, "HOCKET_STALENESS", HELPERS, OWNERS, TURNS, GATES, "a profile of the script"),
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
    PARAMETERS: "policy {policy}, which exchanges parameters",
    GATES: "a plan or a policy whose layers wait at gates",
    OWNERS: "owners that update (bucket {index})",
    CARDS: "a plan whose bucket {index} uses some cards alone",
    "a policy of a library": "a policy that calls {library}",
    "a second model": "a second model, or a model that is distributed again",
    'buffers="before_forward"': 'buffers="before_forward"',
}

REFUSED: dict[tuple[str, str], str] = {
    **{
        (ELASTIC, each): _LOST.format(each)
        for each in (SEARCH, REORDER, SERVERS, HELPERS, "a profile of the script", JOIN)
    },
    **{(ELASTIC, each): _LOST.format(said) for each, said in _ELASTIC.items()},
    (ELASTIC, "sparse gradients"): (
        "an elastic job cannot have sparse gradients yet, and {variable} (bucket {index}) travels as rows: who "
        "has a part of them would be lost with a rank\n"
        "hint: sparse=False for its embedding, or a plan without rows; docs/elastic.md says what an elastic job can do"
    ),
    (
        MEANS,
        TURNS,
    ): "{where}: merged and late gradients are means that all ranks have\nhint: leave one of them out",
    (HELPERS, OWNERS): "{where}: helpers have no optimizer\nhint: leave one of them out",
    (HELPERS, TURNS): "{where}: helpers take part in each iteration\nhint: leave one of them out",
    (HELPERS, SERVERS): (
        "plan: owners of bucket {index} do not train, and other ranks that do not are parameter servers\n"
        "hint: one or the other"
    ),
    (SERVERS, "a policy"): (
        "policy {policy} and parameter servers: each would have all buckets\n"
        "hint: a plan says which buckets go by the policy and which are served"
    ),
    (SERVERS, CARDS): (
        "plan: bucket {index} uses some cards alone, and messages of parameter servers use all\n"
        "hint: `hocket plan` makes plans that jobs run"
    ),
    (SERVERS, TOGETHER): (
        "{what}: with parameter servers, workers push gradients, and do not step together\nhint: {hint}"
    ),
    (FLOW, CARDS): (
        "the flow engine sees a host's cards as one link, and buckets of the plan use some of them alone\n"
        "hint: the closed form tells cards apart: --fidelity closed-form"
    ),
    (REORDER, UNORDERED): ("HOCKET_REORDER is for plans whose ranks all train: {why}\nhint: leave it unset"),
    (SEARCH, "a plan or a policy"): "a search for a plan, and {given} was given\nhint: leave one of them out",
    (NO_AUTOPILOT, DRIVEN): (
        "{asked} and HOCKET_AUTOPILOT=0: the autopilot is what {does}\nhint: leave one of them unset"
    ),
    ("a model that is distributed again", IDLE): (
        "distribute: the model is distributed already, and servers or helpers hold parts of it\n"
        "hint: change the model before `distribute`, or use a plan in which all ranks train"
    ),
    (JOIN, TURNS): (
        "join: gradients are merged or late, and a rank that has finished would leave turns of the others open\n"
        f"{_ALIKE}, or use a plan without merged or late gradients"
    ),
    (JOIN, OWNERS): (
        "join: the plan's owners update values, and a rank that has finished would not step what it owns\n"
        f"{_ALIKE}, or use a plan in which all ranks update"
    ),
    (JOIN, SERVERS): (
        "join: parameter servers let workers finish one after the other by themselves, if no other bucket waits for them\n"
        f"{_ALIKE}"
    ),
    (JOIN, "a policy without means"): (
        "join: {policy} promises {contract}, not the mean of what ranks add: "
        f"it keeps or rounds what a finished rank would have to leave out\n{_ALIKE}"
    ),
}
"""Message by pair of features; names in braces are facts that the code adds."""


def refused(one: str, other: str, **facts: object) -> UsageError:
    """Return the error for a pair of features.

    >>> refused(HELPERS, OWNERS, where="rank 3").summary
    'rank 3: helpers have no optimizer'
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
