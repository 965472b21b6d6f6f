"""Methods that `hocket bench methods` compares, and how a script asks for each; loads no framework.

Those of Hocket's train by one plan, a ring for each of four buckets, and differ in their method alone. Where there is a policy, it
forms the buckets and sends what it likes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hocket.artefacts.local import Local, localized
from hocket.artefacts.needs import declared, needs_of
from hocket.artefacts.plan import Begun, Due, Plan, Schedule, Turn
from hocket.errors import UsageError
from hocket.planning.buckets import with_codec

EVERY, LATE, FRAGMENTS = 20, 5, 2
"""Steps between exchanges of ranks that step alone, steps under an exchange, and parts of the model, of the methods that have
them."""


class Method(Struct, frozen=True, kw_only=True):
    """A way of training. `hook`: of DDP, if it is DDP; `policy`: by which Hocket moves gradients or progress; `local`: how ranks
    step alone; `late`: which iterations' means the optimizer is given, None: its own; `half`: links carry f16."""

    name: str
    about: str
    by: Literal["ddp", "hocket", "torchft"] = "hocket"
    hook: Literal["", "f16", "power_sgd"] = ""
    policy: str | None = None
    local: Local | None = None
    late: Literal["", "one", "own first"] = ""
    half: bool = False


DILOCO = Local(every=EVERY, rate=0.7, momentum=0.9)


METHODS: dict[str, Method] = {
    each.name: each
    for each in (
        Method(name="ddp", about="PyTorch's DDP on Gloo", by="ddp"),
        Method(name="ddp_f16", about="DDP with its f16 hook", by="ddp", hook="f16"),
        Method(name="ddp_power_sgd", about="DDP with its PowerSGD hook, rank 2", by="ddp", hook="power_sgd"),
        Method(name="exact", about="Hocket's exact means"),
        Method(name="rounded", about="Hocket, f16 on all links", half=True),
        Method(name="delayed", about="merged by 2, late by 1, as DeFT has it", late="one"),
        Method(name="own_first", about="merged by 2, late by 1, own gradients first", late="own first"),
        Method(name="average", about=f"the mean of parameters each {EVERY} steps", local=Local(every=EVERY)),
        Method(name="diloco", about=f"DiLoCo, an exchange each {EVERY} steps", local=DILOCO),
        Method(
            name="streaming",
            about=f"Streaming DiLoCo, {FRAGMENTS} fragments, late by {LATE}",
            local=replace(DILOCO, late=LATE, fragments=FRAGMENTS),
        ),
        Method(name="diloco_int4", about="DiLoCo, progress in 4 bits", local=DILOCO, policy="int4"),
        Method(
            name="sparse",
            about="as SparseLoCo: top-k of progress in 2 bits, error feedback",
            local=Local(every=EVERY),
            policy="sparse_int2",
        ),
        Method(
            name="torchft",
            about=f"torchft's DiLoCo on Gloo, an exchange each {EVERY} steps",
            by="torchft",
            local=DILOCO,
        ),
    )
}


def chosen(names: Sequence[str]) -> tuple[list[Method], list[str]]:
    """Return the methods of these names (none: all), and sentences on those that are left out. UsageError: a name is unknown."""
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UsageError(f"there is no method `{unknown[0]}`\nhint: {', '.join(METHODS)}")
    wanted = [METHODS[name] for name in names] if names else list(METHODS.values())
    if importlib.util.find_spec("torchft") is not None or all(each.by != "torchft" for each in wanted):
        return wanted, []
    left_out = "torchft is left out: it is not installed (`pip install torchft-nightly`, in an environment of its own)"
    return [each for each in wanted if each.by != "torchft"], [left_out]


def plan_of_method(method: Method, plan: Plan) -> Plan:
    """Return the plan as a method trains by it.

    >>> from hocket.planning.buckets import plan_of
    >>> plan_of_method(METHODS["exact"], plan_of([], 2, label="rings")).label
    'rings'
    """
    if method.half:
        pairs = [(a, b) for a in plan.workers for b in plan.workers if a != b]
        halved = tuple(with_codec(each, "f16", pairs) for each in plan.buckets)
        made = replace(plan, buckets=halved)
        plan = replace(made, promise=declared(needs_of(made)))
    if method.late:
        turn = Turn(first=0, last=1, sent=Begun(iteration=1, point="backward_end"), due=Due(iteration=2))
        schedule = Schedule(
            period=2,
            turns=((turn,),) * len(plan.buckets),
            rate="sqrt",
            steps=method.late,
            delay_max=1,
        )
        made = replace(plan, schedule=schedule)
        plan = replace(made, promise=declared(needs_of(made)))
    return plan if method.local is None else localized(plan, method.local)
