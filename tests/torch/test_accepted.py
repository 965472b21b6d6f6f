"""What the backend accepts, against what PyTorch's backends for Gloo (run here), NCCL and MPI (by their sources) accept: a program
written for one of them must not find out in its last validation that ours lacks a reduction of some type.

`HOCKET_BLESS=1 pytest tests/torch/test_accepted.py` writes the tables of docs/torch-distributed.md.
"""

import io
import json
import os
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm
from tests.torch.accepted_rank import DTYPES, MOVING, OTHERS, REDUCING, REDUCTIONS

RANK = Path(__file__).parent / "accepted_rank.py"

PAGE = Path(__file__).parents[2] / "docs" / "torch-distributed.md"
BEGIN, END = "<!-- accepted: begin -->\n", "<!-- accepted: end -->\n"

FLOATS = ("float64", "float32", "float16", "bfloat16")
FLOATS8 = ("float8_e4m3fn", "float8_e5m2")
ARITHMETIC = ("SUM", "MIN", "MAX", "PRODUCT")
NCCL = (
    {(name, dtype) for name in (*ARITHMETIC, "AVG") for dtype in (*FLOATS, *FLOATS8)}
    | {(name, dtype) for name in (*ARITHMETIC, "AVG") for dtype in ("int64", "int32", "int8", "uint8")}
    | {(name, "bool") for name in ARITHMETIC}
    | {("PREMUL_SUM", dtype) for dtype in FLOATS}
    | {(name, dtype) for name in ("SUM", "AVG", "PREMUL_SUM") for dtype in ("complex64", "complex128")}
)
"""NCCL's ncclDataType_t and ncclRedOp_t, as far as PyTorch's ProcessGroupNCCL and nccl2 map its types and reductions to them."""
MPI = {
    (name, dtype)
    for name in ARITHMETIC
    for dtype in ("float64", "float32", "int64", "int32", "int16", "int8", "uint8")
}
"""PyTorch's ProcessGroupMPI: its tables mpiOp and mpiDatatype."""


def tried(backend, hosts, path):
    out = io.BytesIO()
    specs = [
        ProcessSpec(argv=warm.command(RANK, backend, str(path / "store"), str(path / "result")), host=host)
        for host in hosts
    ]
    outcome = launch(specs, settings=Settings(timeout_s=60, start_timeout_s=60), out=out, err=out)
    output = out.getvalue().decode()
    assert outcome.code == 0, output
    assert output.count("is right") == len(hosts), output
    return json.loads((path / "result").read_text())


@pytest.fixture(scope="module")
def hocket(tmp_path_factory):
    return tried("hocket", "aa", tmp_path_factory.mktemp("hocket"))


@pytest.fixture(scope="module")
def gloo(tmp_path_factory):
    return tried("gloo", "aa", tmp_path_factory.mktemp("gloo"))


def accepted(found):
    return {
        (name, dtype)
        for name in REDUCTIONS
        for dtype in DTYPES
        if found[f"all_reduce {name} {dtype}"] == "right"
    }


def test_nothing_is_wrong(hocket, tmp_path):
    """A reduction that is accepted and computes something else is worse than one that is refused."""
    for found in (hocket, tried("hocket", "ab", tmp_path)):
        assert {what: said for what, said in found.items() if said.startswith("wrong")} == {}
        assert found.keys() == hocket.keys()
        assert accepted(found) == accepted(hocket)


def test_every_collective_takes_the_same(hocket):
    """A type that is reduced by one collective and not by another."""
    for name, dtype in sorted(accepted(hocket)):
        assert {what: hocket[f"{what} {name} {dtype}"] for what in REDUCING} == dict.fromkeys(
            REDUCING, "right"
        )
    for dtype in DTYPES:
        assert {what: hocket[f"{what} - {dtype}"] for what in MOVING} == dict.fromkeys(MOVING, "right")
    assert {what: hocket[what] for what in OTHERS} == dict.fromkeys(OTHERS, "right")


def test_what_a_peer_accepts(hocket, gloo):
    """A program for Gloo, NCCL or MPI would end in a TypeError."""
    assert {what for what, said in gloo.items() if said == "right" and hocket[what] != "right"} == set()
    assert (NCCL | MPI) - accepted(hocket) == set()


def test_the_rest_is_refused_by_name(hocket):
    """A refusal that does not say of what leaves a user with every call to look at."""
    for name in REDUCTIONS:
        for dtype in DTYPES:
            if (name, dtype) not in accepted(hocket):
                said = hocket[f"reduce {name} {dtype}"]
                assert said.startswith(f"TypeError: backend hocket has no {name} of torch.{dtype}"), said


def test_the_page(hocket, gloo):
    """The documentation would promise what is not so."""
    written = PAGE.read_text()
    before, rest = written.split(BEGIN)
    _, after = rest.split(END)
    page = before + BEGIN + tables(hocket, gloo) + END + after
    if os.environ.get("HOCKET_BLESS"):
        PAGE.write_text(page)
        written = page
    assert page == written, "HOCKET_BLESS=1 writes it"


def tables(hocket, gloo):
    ours, theirs = accepted(hocket), accepted(gloo)
    lines = ["", f"| of | {' | '.join(REDUCTIONS)} | moved |", f"| --- |{' --- |' * (len(REDUCTIONS) + 1)}"]
    for dtype in DTYPES:
        cells = []
        for name in REDUCTIONS:
            pair = (name, dtype)
            peers = "".join(
                letter for letter, known in (("N", NCCL), ("G", theirs), ("M", MPI)) if pair in known
            )
            cells.append(f"yes {peers}".strip() if pair in ours else "no")
        lines.append(f"| {dtype} | {' | '.join(cells)} | yes |")
    lines += ["", "| collective | hocket | Gloo |", "| --- | --- | --- |"]
    for what in (*REDUCING, *MOVING, *OTHERS):
        key = what if what in OTHERS else f"{what} {'SUM' if what in REDUCING else '-'} float32"
        lines.append(
            f"| `{what}` | {'yes' if hocket[key] == 'right' else 'no'} | {'yes' if gloo[key] == 'right' else 'no'} |"
        )
    return "\n".join([*lines, "", ""])
