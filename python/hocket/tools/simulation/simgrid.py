"""SimGrid fidelity: the same plan, costs and links in an independent engine, to check the flow engine itself.

SimGrid runs in a process of its own (`simgrid_job.py`), with this Python or with Debian's packages, and only when this fidelity is
requested. Its links are ideal: no incast, no queues, no bursts of token buckets, no jitter, and sockets that take no time of ranks.
A message takes about a thousand times as long to simulate as in the flow engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hocket._native import BUCKET_S, Program
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.errors import SimulationError, UsageError
from hocket.tools.simulation import flow, timelines
from hocket.tools.simulation.conditions import Costs
from hocket.tools.simulation.on_cards import uses_cards
from hocket.tools.simulation.outcome import BucketSpan, Outcome

DEBIAN = "/usr/lib/python3/dist-packages"
"""Install path of `apt-get install python3-simgrid`."""

TIMEOUT_S = 600.0

MISSING = "SimGrid is not installed\nhint: apt-get install python3-simgrid, or pip install simgrid"


def environment() -> dict[str, str] | None:
    """Return variables with which this Python finds SimGrid; None: it cannot."""
    for path in ("", DEBIAN):
        tried = subprocess.run(
            [sys.executable, "-P", "-c", "import simgrid"],
            env={"PYTHONPATH": path},
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return {"PYTHONPATH": path}
    return None


def predict(plan: Plan, network: Network, profile: Profile, *, costs: Costs | None = None) -> Outcome:
    """Predict one step of the plan. Ignores incast and bursts of the network.

    Raises UsageError when SimGrid is missing or plan, profile and network do not fit, SimulationError when it cannot run the job.
    """
    costs = costs or Costs()
    if not costs.rendezvous:
        raise UsageError(
            "SimGrid runs programs as the native executor does: data flows once its receive is posted"
        )
    if plan.world != network.world:
        raise UsageError(f"the plan is for {plan.world} ranks, the network has {network.world}")
    if uses_cards(plan.buckets):
        raise UsageError(
            "SimGrid sees a host's cards as one link, and buckets of the plan use some alone: --fidelity flow"
        )
    if profile.bus is not None:
        raise UsageError("SimGrid knows no bus of devices, and the profile has one: --fidelity flow")
    timelines.refuse_turns(plan.schedule, "SimGrid runs")
    prepared = flow.Prepared.of(plan, profile)
    _, ready_s = flow.computation(plan, profile)
    programs, place = prepared.programs, prepared.place
    launches: list[dict[str, Any]] = [
        {
            "program": place[index],
            "priority": bucket.priority,
            "after_s": [BUCKET_S + ready_s[index]] * plan.world,
        }
        for index, bucket in enumerate(plan.buckets)
    ]
    pairs = sorted({pair for program in programs for pair in program.pairs()})
    routes = [network.path(*pair) for pair in pairs]
    number = {pair: at for at, pair in enumerate(pairs)}
    request = {
        "world": plan.world,
        "links_bytes_per_s": [link.bit_per_s / 8 for link in network.links],
        "routes": [{"links": list(links), "latency_s": latency_s} for links, latency_s in routes],
        "programs": [_listed(program, number, costs) for program in programs],
        "launches": launches,
    }
    ends_s = _run(request)
    busy_s = profile.forward_s + profile.backward_s
    step_s = max([busy_s, *ends_s]) + max(0.0, profile.step_s - busy_s)
    spans = (
        BucketSpan(bucket=index, elements=bucket.elements, launched_s=launch["after_s"][0], done_s=end_s)
        for index, (bucket, launch, end_s) in enumerate(zip(plan.buckets, launches, ends_s, strict=True))
    )
    return Outcome(
        fidelity="simgrid",
        network=network.title,
        world=plan.world,
        steps=1,
        step_s=step_s,
        exposed_s=max(0.0, step_s - profile.step_s),
        buckets=tuple(spans),
    )


def _run(request: dict[str, Any]) -> list[float]:
    having = environment()
    if having is None:
        raise UsageError(MISSING)
    try:
        ran = subprocess.run(
            # Without the script's folder in its path, where this file would be imported as `simgrid`.
            [sys.executable, "-P", str(Path(__file__).with_name("simgrid_job.py"))],
            input=json.dumps(request),
            env=having,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SimulationError(
            f"SimGrid was not done after {TIMEOUT_S:g} s\nhint: --fidelity flow takes a thousandth of its time"
        ) from None
    if ran.returncode:
        last_words = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise SimulationError(f"SimGrid failed: {last_words[0]}")
    ends_s: list[float | None] = json.loads(ran.stdout)
    if None in ends_s:
        raise SimulationError(
            f"bucket {ends_s.index(None)} never ends in SimGrid\nhint: --fidelity flow names who waits for whom"
        )
    return [end_s for end_s in ends_s if end_s is not None]


def _listed(program: Program, number: dict[tuple[int, int], int], costs: Costs) -> list[dict[str, Any]]:
    """Return all ranks' ops with their engine time; positions of ops count through all ranks."""
    listed: list[dict[str, Any]] = []
    open_ends: dict[tuple[int, int, int], int] = {}
    for rank in range(program.world):
        dtypes = [dtype for _, dtype, *_ in program.buffers(rank)]
        first = len(listed)
        for fields in program.ops(rank):
            own: dict[str, Any] = {"rank": rank, "after": [first + each for each in fields["after"]]}
            own |= _work(rank, fields, dtypes, number, costs)
            if own["kind"] != "compute":
                ends = (rank, fields["peer"]) if own["kind"] == "send" else (fields["peer"], rank)
                message = (*ends, fields["tag"])
                if message in open_ends:
                    own["peer"] = open_ends.pop(message)
                    listed[own["peer"]]["peer"] = len(listed)
                else:
                    open_ends[message] = len(listed)
            listed.append(own)
    return listed


def _work(
    rank: int,
    fields: dict[str, Any],
    dtypes: list[str],
    number: dict[tuple[int, int], int],
    costs: Costs,
) -> dict[str, Any]:
    """Return the resources of an op: seconds of the engine, and for a message its route and bytes."""

    def size_bytes(where: tuple[int, int, int]) -> int:
        buffer, start, stop = where
        return (stop - start) * ITEM_BYTES[dtypes[buffer]]

    op = fields["op"]
    if op in ("send", "recv"):
        where = fields["src" if op == "send" else "dst"]
        cast_s = costs.cast_s_per_byte * size_bytes(where) if fields["wire"] != dtypes[where[0]] else 0.0
        reduce_s = costs.reduce_s_per_byte * size_bytes(where) if fields.get("reduce") else 0.0
        pair = (rank, fields["peer"]) if op == "send" else (fields["peer"], rank)
        return {
            "kind": op,
            "route": number[pair],
            "bytes": (where[2] - where[1]) * ITEM_BYTES[fields["wire"]],
            "cost_s": (costs.send_s if op == "send" else costs.receive_s) + cast_s + reduce_s,
        }
    if op == "call":
        taken, made = (sum(map(size_bytes, fields[each])) for each in ("inputs", "outputs"))
        if fields["kernel"].startswith("scatter_add"):
            return {"kind": "compute", "cost_s": costs.reduce_s_per_byte * taken}
        return {"kind": "compute", "cost_s": costs.copy_s_per_byte * (taken + made)}
    if op == "cast" or fields.get("round") is not None:
        per_byte = costs.cast_s_per_byte
    elif op == "reduce":
        per_byte = costs.reduce_s_per_byte
    elif op in ("copy", "apply", "record"):
        per_byte = costs.copy_s_per_byte
    else:
        raise UsageError(f"collective `{op}` is unknown to SimGrid: it is not lowered, or a library's")
    where = fields["dst"] if "dst" in fields else fields["src"]
    return {"kind": "compute", "cost_s": per_byte * size_bytes(where)}
