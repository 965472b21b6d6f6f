"""`hocket order` as a person calls it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.order import command
from hocket.errors import Error

NAMES = [f"node{index}" for index in range(8)]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Two racks, hosts in turns: 1 within, 10 between."""
    rows = [[0 if a == b else 1 if a % 2 == b % 2 else 10 for b in range(8)] for a in range(8)]
    lines = ["," + ",".join(NAMES)] + [
        f"{name}," + ",".join(map(str, row)) for name, row in zip(NAMES, rows, strict=True)
    ]
    path = tmp_path / "matrix.csv"
    path.write_text("\n".join(lines))
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_json_has_the_order_and_what_is_known_of_it(matrix: Path) -> None:
    """Broken: a script could not use the order, or not know how good it is."""
    result = call("--matrix", matrix, "--unit", "us", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert sorted(said["order"]) == list(range(8))
    assert said["hosts"] == [NAMES[host] for host in said["order"]]
    assert said["cost_s"] == pytest.approx(14 / 8 * 26e-6)
    assert said["given_s"] == pytest.approx(14 / 8 * 80e-6)
    assert said["proven"] is True
    assert said["gap"] == 0
    assert {host % 2 for host in said["order"][:4]} in ({0}, {1})


def test_tables_say_before_after_bound_and_gain(matrix: Path) -> None:
    """Broken: a person would have to trust the order."""
    result = call("--matrix", matrix)
    assert result.exit_code == 0
    for said in (
        "given order",
        "this order",
        "no order takes less than",
        "times faster",
        "No order is better",
    ):
        assert said in result.output


def test_formats_are_printed_alone_or_written(matrix: Path, tmp_path: Path) -> None:
    """Broken: output could not be redirected into a host file."""
    printed = call("--matrix", matrix, "--format", "slurm")
    assert sorted(printed.stdout.split()) == NAMES
    path = tmp_path / "rankfile"
    assert call("--matrix", matrix, "--format", "openmpi-rankfile", "-o", path).output == ""
    assert path.read_text().startswith("rank 0=node")


def test_a_hosts_file_gives_slots(matrix: Path, tmp_path: Path) -> None:
    """Broken: hosts of several ranks would be started with one."""
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{name} slots=2\n" for name in NAMES))
    assert call("--matrix", matrix, "--hosts", hosts, "--format", "mpich").stdout.count(":2\n") == 8


def test_auto_chooses_algorithm_and_groups_by_size(tmp_path: Path) -> None:
    """Broken: the algorithm would be the same for a kilobyte and for a gigabyte."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in NAMES)
    latency = tuple(
        tuple(0.0 if a == b else 1e-5 if a % 2 == b % 2 else 1e-4 for b in range(8)) for a in range(8)
    )
    rates = tuple(tuple(1e9 if a % 2 == b % 2 else 5e8 for b in range(8)) for a in range(8))
    path = tmp_path / "cluster.toml"
    files.write(path, Cluster(hosts=hosts, latency_s=latency, bandwidth_bit_per_s=rates))
    chosen = {}
    for size, options in (("0", ()), ("1e9", ("--sizes", "1e9"))):
        result = call("--cluster", path, "--algorithm", "auto", *options, "--json")
        said = json.loads(result.stdout)
        chosen[size] = said["algorithm"]
        assert said["cost_s"] == min(each["cost_s"] for each in said["considered"])
    latency_bound = ("recursive_doubling", "double_binary_tree", "two_level")
    assert chosen["0"] in latency_bound
    assert chosen["1e9"] not in latency_bound


def test_exec_runs_the_command_with_the_order(matrix: Path) -> None:
    """Broken: a job could not be started in one line."""
    result = call("--matrix", matrix, "--exec", "--", "sh", "-c", 'test "$(wc -l < {hosts})" = 8 && exit 5')
    assert result.exit_code == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of --matrix, --cluster and --topology"),
        (["--matrix", "M", "--cluster", "M"], "one of --matrix, --cluster and --topology"),
        (["--cluster", "M", "--bandwidth-matrix", "M"], "--bandwidth-matrix is for --matrix"),
        (["--matrix", "M", "--algorithm", "rings"], "'rings' is not one of 'ring', 'two_level'"),
        (["--matrix", "M", "--groups", "4,x"], "`x` is not a whole number"),
        (["--matrix", "M", "--groups", "4,4"], "groups are for two_level"),
        (["--matrix", "M", "--algorithm", "two-level", "--groups", "3,3"], "do not divide 8 hosts"),
        (["--matrix", "M", "--sizes", "-1"], "`-1` is not a size"),
        (["--matrix", "M", "--sizes", "nan"], "`nan` is not a size"),
        (["--matrix", "M", "--sizes", "1KB,1MB", "--format", "hosts"], "leave out --format and --exec"),
        (["--matrix", "M", "--json", "--format", "hosts"], "write --format to -o FILE"),
        (["--matrix", "M", "--base", "1"], "1 is not in the range"),
        (["--matrix", "M", "--exec"], "a command comes behind --exec --"),
        (["--matrix", "M", "mpirun"], "what is `mpirun`?"),
        (["--matrix", "M", "-o", "file"], "-o is for what --format says"),
        (["--matrix", "missing.csv"], "missing.csv cannot be read"),
        (["--matrix", "M", "--format", "hosts", "-o", "/nonexistent/out"], "cannot be written"),
        (["--matrix", "M", "--exec", "--", "ls"], "ls is no launcher"),
    ],
)
def test_wrong_use_gives_one_clear_message(matrix: Path, arguments: list[str], said: str) -> None:
    """Broken: a wrong call would end in a traceback, or do something else than was meant."""
    result = call(*(matrix if argument == "M" else argument for argument in arguments))
    assert result.exit_code != 0
    message = result.output if result.exit_code == 2 else str(result.exception)
    assert said in message
    assert result.exit_code == 2 or isinstance(result.exception, Error)


def test_a_time_limit_gives_the_best_so_far(tmp_path: Path) -> None:
    """Broken: nobody could wait for an order of many hosts."""
    rows = [[0 if a == b else 1 + (a * 7 + b * 7) % 13 + (a * b) % 5 for b in range(60)] for a in range(60)]
    path = tmp_path / "matrix.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    result = call(
        "--matrix", path, "--algorithm", "bcube", "--effort", "1000", "--time-limit", "0.1", "--json"
    )
    said = json.loads(result.stdout)
    assert said["complete"] is False
    assert said["cost_s"] <= said["given_s"]
    assert sorted(said["order"]) == list(range(60))


def test_the_same_seed_gives_the_same_order(tmp_path: Path) -> None:
    """Broken: two people would argue about two orders."""
    rows = [[0 if a == b else 1 + (a * 7 + b * 7) % 13 + (a * b) % 5 for b in range(40)] for a in range(40)]
    path = tmp_path / "matrix.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    said = [
        call("--matrix", path, "--effort", "0.1", "--algorithm", "auto", "--json").stdout for _ in range(2)
    ]
    assert said[0] == said[1]


def test_sizes_get_an_order_and_an_algorithm_each(matrix: Path, tmp_path: Path) -> None:
    """Broken: small and large messages would share an order that is best for neither."""
    rates = tmp_path / "rates.csv"
    # What is near is slow, and what is far is fast.
    rows = [[0 if a == b else 1e8 if a % 2 == b % 2 else 1e10 for b in range(8)] for a in range(8)]
    rates.write_text("\n".join(",".join(map(str, row)) for row in rows))
    ask = [
        "--matrix",
        matrix,
        "--unit",
        "us",
        "--bandwidth-matrix",
        rates,
        "--algorithm",
        "auto",
        "--sizes",
        "1e8,16",
    ]
    result = call(*ask, "--json")
    assert result.exit_code == 0, result.output
    small, large = json.loads(result.stdout)
    assert (small["size_bytes"], large["size_bytes"]) == (16, 1e8)
    assert small["algorithm"] != large["algorithm"]
    ring = {each["algorithm"]: each["order"] for each in large["considered"]}["ring"]
    assert all(a % 2 != b % 2 for a, b in pairwise(ring))
    ring = {each["algorithm"]: each["order"] for each in small["considered"]}["ring"]
    assert sum(a % 2 != b % 2 for a, b in pairwise(ring)) <= 1
    assert "1e+08" in call(*ask).output


@pytest.mark.parametrize(
    "options", [["--sizes", "0"], ["--sizes", "x"], ["--sizes", "1,2", "--format", "hosts"]]
)
def test_sizes_that_make_no_sense_are_refused(matrix: Path, options: list[str]) -> None:
    """Broken: a table would be written where a launcher expects hosts."""
    assert call("--matrix", matrix, *options).exit_code == 2


def test_sizes_need_bandwidth(matrix: Path) -> None:
    """Broken: all sizes would get the same order as if that had been found out."""
    assert isinstance(call("--matrix", matrix, "--sizes", "1,2").exception, Error)
