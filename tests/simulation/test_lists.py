"""`hocket simulate sweep`: all combinations, in order, and a picture of them."""

import json
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.main import hocket
from hocket.planning import search


@pytest.fixture
def cluster(tmp_path):
    hosts = tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(2))
    made = Cluster(hosts=hosts)
    files.write(tmp_path / "cluster.toml", made)
    files.write(tmp_path / "plan.json", search.plan(made, None, 2))
    return str(tmp_path / "cluster.toml")


def call(*argv):
    return CliRunner().invoke(hocket, ["simulate", "sweep", *map(str, argv)])


def test_lists_answer_every_combination_and_draw_them(cluster, tmp_path):
    """A combination would be missing, or have another's time."""
    argv = ["--cluster", cluster, "--bandwidth", "100Mbit,1Gbit", "-n", "2,4"]
    argv += ["--strategy", "ring,ring-f16,two-level", "--svg", tmp_path / "plot.svg", "--json"]
    done = call(*argv)
    assert done.exit_code == 0, done.output
    answers = json.loads(done.stdout)
    found = {tuple(each["case"].values()): each["step_s"] for each in answers}
    assert len(found) == len(answers) == 12
    for world in (2, 4):
        for name in ("ring", "ring-f16", "two-level"):
            assert found[1e9, world, name] < found[1e8, world, name]
        assert found[1e8, world, "ring-f16"] < found[1e8, world, "ring"]
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")  # noqa: S314


def test_without_lists_it_is_the_cluster_as_it_is(cluster):
    """Another network than the file's would be answered for."""
    as_it_is = json.loads(call("--cluster", cluster, "--strategy", "ring", "--json").stdout)
    same = json.loads(
        call("--cluster", cluster, "--strategy", "ring", "-n", 2, "--bandwidth", "1Gbit", "--json").stdout
    )
    assert [each["step_s"] for each in as_it_is] == [each["step_s"] for each in same]
    assert [each["case"]["world"] for each in as_it_is] == [2]


def test_a_plan_at_several_bandwidths(cluster, tmp_path):
    """A plan could only be tried on the network that it was made for; one bandwidth would differ from a list of one."""
    plan = tmp_path / "plan.json"
    argv = ("--cluster", cluster, "--plan", plan, "--json")
    slow, fast = json.loads(call(*argv, "--bandwidth", "100Mbit,1Gbit").stdout)
    assert slow["step_s"] > fast["step_s"]
    argv = ("--cluster", cluster, "--json", "--bandwidth")
    one = CliRunner().invoke(hocket, ["simulate", "plan", str(plan), *argv, "100Mbit"])
    assert json.loads(one.stdout)["step_s"] == slow["step_s"]
    straggler = json.loads(call(*argv, "1Gbit,100Mbit", "--plan", plan, "--slow", "0:3").stdout)
    assert straggler[0]["step_s"] > fast["step_s"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--strategy", "rings"], "there is no strategy `rings`"),
        (["-n", "1"], "a step of 1 rank has no communication"),
        (["-n", "0"], "`0` is not a whole number from 1"),
        (["--bandwidth", "fast"], "`fast` is not a rate such as"),
        (["--svg", "x.svg"], "hint: give some, such as --bandwidth"),
        (["--steps", "3"], "No such option"),
        (["--plan", "PLAN", "-n", "4"], "a plan is for its own ranks"),
        (["--plan", "PLAN", "--strategy", "ring"], "a plan is for its own ranks"),
        (["--fidelity", "closed-form", "--shaped"], "the closed form knows one ideal step"),
    ],
)
def test_what_does_not_fit_is_refused(cluster, tmp_path, argv, said):
    """A typing error would be simulated in silence."""
    done = call(*(tmp_path / "plan.json" if each == "PLAN" else each for each in argv), "--cluster", cluster)
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)
