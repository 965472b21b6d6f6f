"""Every example of a `--help` is right: all are parsed; those that need neither root nor minutes run, as a first hour."""

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from tests.cli.commands import ROOTS, commands, help_of, leaves, root_of
from tests.support import warm
from tests.support.commands import completed

ROOT = Path(__file__).parents[2]

RUN = (
    "hocket profile", "hocket plan", "hocket order", "hocket verify", "hocket run", "hocket report",
    "hocket simulate plan", "hocket simulate sweep", "hocket simulate trace",
    "hocket trace show", "hocket trace analyse", "hocket trace convert", "hocket trace diff",
)  # fmt: skip
"""In this order, each with what those before it wrote."""

PARSED = (
    "hocket bench",
    "hocket check",
    "hocket coordinator",
    "hocket demo",
    "hocket doctor",
    "hocket join",
    "hocket leave",
    "hocket probe",
    "hocket simulate all-reduce",
    "hocket testbed",
    "hocket top",
    "hocket trace replay",
    "hocket tune",
    "python -m benches",
)
"""They take minutes, other machines, root or a job that runs; tests of their own run them."""

SCRIPT = """
import torch
import hocket.torch as hk

model = torch.nn.Linear(10, 3)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(2, 10)).sum().backward()
    optimizer.step()
"""


def examples():
    """Command and example, of all commands."""
    found = []
    for name, command in commands().items():
        text = help_of(name, command).partition("Options:")[0]
        lines = re.findall(
            r"Example: (?:[A-Z_]+=\S+ )?((?:hocket|python -m benches) .*(?:\n {4}\S.*)*)", text
        )
        found += [(name, " ".join(line.split())) for line in lines]
    return found


@pytest.mark.parametrize(("name", "line"), examples())
def test_examples_parse(name, line):
    """The first thing that a user copies would be refused."""
    root = root_of(line)
    command, context = ROOTS[root], click.Context(ROOTS[root], info_name=root)
    rest = shlex.split(re.split(" [>|] ", line.removeprefix(root))[0])
    while isinstance(command, click.Group):
        below = command.get_command(context, rest[0])
        assert below is not None, line
        context = below.make_context(
            rest[0], rest[1:], parent=context, resilient_parsing=isinstance(below, click.Group)
        )
        command, rest = below, rest[1:]
    assert name in ROOTS or line.startswith(name), line


def test_every_example_is_run_or_left_to_another_test():
    """A new verb's example would never have run."""
    left = [name for name, _ in examples() if name in leaves() and not name.startswith((*RUN, *PARSED))]
    assert left == []


def test_a_first_hour_by_the_examples(tmp_path):
    """Who follows the help from verb to verb would be stopped by an example that does not fit those before it."""
    hosts = tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(12))
    files.write(tmp_path / "cluster.toml", Cluster(hosts=hosts))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "policy.py").write_text((ROOT / "python/hocket/policies/two_level.py").read_text())
    _dlc(tmp_path)
    lines = [line for wanted in RUN for name, line in examples() if name == wanted]
    assert len(lines) >= len(RUN)
    for line in lines:
        words, _, target = line.removeprefix("hocket ").partition(" > ")
        ran = completed(warm.hocket(*shlex.split(words)), cwd=tmp_path, OMP_NUM_THREADS="1")
        assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
        if target:
            (tmp_path / target).write_text(ran.stdout)
    assert {"profile.json", "plan.json", "report.html", "steps.svg", "worker0.parquet"} <= {
        each.name for each in tmp_path.iterdir()
    }


def _dlc(directory):
    """The files of a DLC trace: two workers and a server, two nodes before and after a change."""
    source = ROOT / "tests/replay/replay_inputs.py"
    spec = importlib.util.spec_from_file_location("replay_inputs", source)
    inputs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(inputs)
    job, end_us = inputs.ParameterServer(), 0
    for at in range(inputs.ITERATIONS):
        end_us = job.iteration(at, end_us)
    written = job.write(directory)
    for path, name in zip(written, ("worker0.txt", "worker1.txt", "server0.txt"), strict=True):
        path.rename(directory / name)
    for name in ("before.txt", "after.txt"):
        (directory / name).write_text((directory / "worker0.txt").read_text())
