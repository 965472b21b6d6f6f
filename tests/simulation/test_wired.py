"""Networks that a file describes link by link, and all-reduces by trees that fill them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benches.trees.networks import a100, mi250
from hocket.artefacts import files
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.plan_check import check
from hocket.cli.main import hocket
from hocket.errors import ArtefactError, UsageError
from hocket.planning.compile import programs
from hocket.tools.simulation import all_reduce
from hocket.tools.simulation.wired import Cable, Wired, read

HOMES = Path(__file__).parents[2] / "examples" / "three-homes-and-a-host.toml"


def names(network, source, destination):
    return [network.links[link].name for link in network.path(source, destination)[0]]


def test_routes_pass_through_switches_before_ranks_and_then_take_few_wide_links():
    """Bytes would be passed on by ranks that have their own to send, or take a narrow way beside a wide one."""
    wired = Wired(
        ranks=("a", "b", "c"),
        links=(
            Cable(between=("a", "b"), bit_per_s=1e9),
            Cable(between=("b", "c"), bit_per_s=1e9),
            Cable(between=("a", "narrow"), bit_per_s=1e8),
            Cable(between=("narrow", "c"), bit_per_s=1e8),
            Cable(between=("a", "wide"), bit_per_s=(2e8, 3e8)),
            Cable(between=("wide", "c"), bit_per_s=2e8),
        ),
    )
    network = wired.network()
    assert names(network, 0, 1) == ["a to b"]
    assert names(network, 0, 2) == ["a to wide", "wide to c"]
    assert names(network, 2, 0) == ["c to wide", "wide to a"]
    assert network.bit_per_s(2, 0) == 2e8
    assert wired.network(2).world == 2


def test_what_is_no_network_is_refused_by_name(tmp_path):
    """A misspelt switch would be a rank that nobody reaches, or a rate of zero a division by it."""
    cable = Cable(between=("a", "b"), bit_per_s=1e9)
    refused = {
        "no links lead from .+: both are ranks": Wired(ranks=("a", "b", "c"), links=(cable,)),
        "rank a is named twice": Wired(ranks=("a", "a"), links=(cable,)),
        "a link leads from a to itself": Wired(
            ranks=("a", "b"), links=(Cable(between=("a", "a"), bit_per_s=1.0),)
        ),
        "it must be above 0 and finite": Wired(
            ranks=("a", "b"), links=(Cable(between=("a", "b"), bit_per_s=(1e9, 0.0)),)
        ),
        "1 ranks": Wired(ranks=("a",), links=()),
    }
    for what, wired in refused.items():
        with pytest.raises(UsageError, match=what):
            all_reduce.trees(wired.network())
    path = tmp_path / "links.toml"
    path.write_text('ranks = ["a"]\n[[links]]\nbetween = ["a"]\nbit_per_s = 1e9\n')
    with pytest.raises(ArtefactError, match=r"links\[0\].between|between"):
        read(path)


@pytest.mark.parametrize(
    ("wired", "seconds"),
    [
        (a100(1), 7 / 300e9),
        (a100(2), 15 / 325e9),
        (a100(4), 24 / 200e9),
        (mi250(1), 3 / 70e9),
        (mi250(2), 15 / 166e9),
    ],
)
def test_trees_fill_the_networks_of_accelerators(wired, seconds):
    """Links of the narrowest cut would be idle part of the time. `seconds`: of a byte of each rank, by hand: ranks before the cut
    over the rate across it."""
    network = wired.network()
    found = all_reduce.trees(network)
    assert found.least_s_per_bit == pytest.approx(2 * seconds / network.world / 8)
    assert found.least_s_per_bit <= found.taken_s_per_bit * (1 + 1e-9)
    assert found.taken_s_per_bit <= found.least_s_per_bit / 0.99


def test_an_all_reduce_on_any_network_from_the_command_line(tmp_path):
    """Users could not see what their network allows, or the plan would not be the one that was predicted."""
    path = tmp_path / "plan.json"
    arguments = [
        "simulate",
        "all-reduce",
        str(HOMES),
        "--size",
        "8MiB",
        "--algorithm",
        "ring",
        "-o",
        str(path),
    ]
    done = CliRunner().invoke(hocket, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    own, ring = json.loads(done.output)["predicted"]
    # Homes send no more than their own values and their parts of the sum.
    assert own["of_optimum"] > 0.97 > ring["of_optimum"]
    plan = files.read(path, Plan)
    programs(plan)
    again = CliRunner().invoke(hocket, ["simulate", "plan", str(path), "--network", str(HOMES), "--json"])
    assert json.loads(again.output)["step_s"] == pytest.approx(own["taken_s"], rel=0.1)


def test_damaged_trees_in_a_plan_are_named():
    """A rank that no tree reaches would keep its own gradient."""
    plan = all_reduce.plan(AllReduce(algorithm="trees", sizes=(1, 0, 1, 0, 0)), 2, 1024)
    with pytest.raises(ArtefactError, match="parents must lead every member to the root"):
        check(plan, name="plan")
