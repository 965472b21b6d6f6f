"""The flow engine against SimGrid, an engine that shares nothing with it."""

import json
import random
import sys
from pathlib import Path

import pytest

from hocket import _native
from hocket._native import Program
from hocket.artefacts.network import Link
from hocket.tools.simulation import simgrid
from tests.support.commands import completed

FLOWS = 12
FREE = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)


@pytest.fixture(scope="module")
def interpreter():
    """A Python that has SimGrid: this one, or this one with Debian's packages."""
    environment = simgrid.environment()
    if environment is None:
        pytest.skip(simgrid.MISSING)
    return environment


def drawn(seed):
    chance = random.Random(seed)  # noqa: S311
    links = [chance.uniform(1e6, 1e8) for _ in range(chance.randint(3, 10))]
    flows = [
        {
            "links": chance.sample(range(len(links)), chance.randint(1, min(4, len(links)))),
            "bytes": chance.randint(100_000, 10_000_000),
            "start_s": chance.choice([0.0, chance.uniform(0, 1)]),
        }
        for _ in range(FLOWS)
    ]
    return {"links": links, "flows": flows}


def ours(asked):
    routes = [(2 * at, 2 * at + 1, flow["links"], 0.0) for at, flow in enumerate(asked["flows"])]
    links = [Link(f"link{at}", 8 * rate) for at, rate in enumerate(asked["links"])]
    world = 2 * FLOWS
    network = _native.Network([0] * world, links, routes)
    programs, launches = [], []
    for at, flow in enumerate(asked["flows"]):
        programs.append(_native.SimulatedProgram.compile(message(at, flow["bytes"], world), network, FREE))
        launches.append((at, 0, [flow["start_s"]]))
    done = _native.simulate(
        network,
        programs,
        _native.SimulatedJob.phases(world, [(launches, [], [])]),
        rendezvous=True,
        seed=0,
        jitter=0.0,
        slow=[],
        changes=[],
        recorded=False,
    )
    return [end for _, end in done.launches_s]


def message(at, size_bytes, world):
    """Rank 2 at sends to the next one, the others do nothing."""
    text = [f'program "flow.{at}" world {world}']
    for rank in range(world):
        text += [f"rank {rank} {{", f'  %0 = bound u8 {size_bytes} "bytes"']
        if rank == 2 * at:
            text.append(f"  0: send %0[0:{size_bytes}] as u8 to {rank + 1} tag 0")
        if rank == 2 * at + 1:
            text.append(f"  0: recv %0[0:{size_bytes}] as u8 store from {rank - 1} tag 0")
        text.append("}")
    return Program.parse("\n".join(text) + "\n")


@pytest.mark.parametrize("seed", range(20))
def test_flows_end_when_simgrid_says(seed, interpreter):
    """Flows would share links in a way that only this engine believes in."""
    asked = drawn(seed)
    script = Path(__file__).with_name("simgrid_flows.py")
    said = completed([sys.executable, str(script)], input=json.dumps(asked), env=interpreter)
    assert said.returncode == 0, said.stderr
    theirs = json.loads(said.stdout)
    for own, other in zip(ours(asked), theirs, strict=True):
        assert own == pytest.approx(other, rel=0.02)
