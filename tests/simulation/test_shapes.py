"""Networks by a few numbers: each is that of `networks`, and what fits no shape is refused by name."""

import json

import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.cli.main import hocket
from hocket.cli.simulations.networks import shape
from hocket.cli.simulations.plan import profile_of
from hocket.errors import UsageError
from hocket.planning import search
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import fat_tree, leaf_spine, star, torus
from hocket.tools.simulation.shapes import HOSTS_MAX

SHAPES = {
    "star:6,1Gbit,ranks=2,nics=2,latency=20": lambda: star(
        6, bit_per_s=1e9, ranks_per_host=2, nics=2, latency_s=20e-6
    ),
    "leaf-spine:3x4,25Gbit,oversubscription=3,spines=2": lambda: leaf_spine(
        3, 4, bit_per_s=25e9, oversubscription=3, spines=2
    ),
    "fat-tree:4,10Gbit": lambda: fat_tree(4, bit_per_s=10e9),
    "torus:3x4x2,100Mbit,latency=7.5": lambda: torus([3, 4, 2], bit_per_s=1e8, latency_s=7.5e-6),
}


@pytest.mark.parametrize("text", SHAPES)
def test_a_text_is_its_network(text):
    """Another network than the named one would be simulated."""
    whole = SHAPES[text]()
    found = shape(text).network(7)
    assert found.hosts == whole.hosts[:7]
    assert (found.links, found.title) == (whole.links, whole.title)
    for pair in found.pairs():
        links, latency_s = found.path(*pair)
        assert links == whole.path(*pair)[0]
        assert latency_s == pytest.approx(whole.path(*pair)[1])


@pytest.mark.parametrize(
    "text",
    [
        "", "star", "star:", "star:4", "star:4,", "star:0,1Gbit", "star:4,0", "ring:4,1Gbit", "torus:4x,1Gbit", "torus:4x-1,1Gbit",
        "star:4,1Gbit,ports=2", "star:4,1Gbit,ranks=0", "star:4,1Gbit,ranks=2,ranks=2", "leaf-spine:2x2,1Gbit,spines",
    ],
)  # fmt: skip
def test_texts_that_are_no_shape_are_refused(text):
    """A typing error would be simulated as something else."""
    with pytest.raises(ValueError):  # noqa: PT011  # click shows an example
        shape(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("leaf-spine:4,1Gbit", "give its leaves and the hosts of each"),
        ("star:4x4,1Gbit", "give its hosts"),
        ("torus:2x2x2x2x2x2x2,1Gbit", "give its extents"),
        ("fat-tree:5,1Gbit", "even number"),
        ("star:4,1Gbit,spines=2", "spines of a star: only a leaf-spine has it"),
        ("torus:4x4,1Gbit,oversubscription=2", "only a leaf-spine has it"),
        ("leaf-spine:4x4,1Gbit,oversubscription=nan", "it must be above 0"),
        ("star:4,1Gbit,latency=0", "it must be above 0 and finite"),
        (f"star:{HOSTS_MAX + 1},1Gbit", "it may have 65,536"),
        ("star:2,1Gbit", "4 ranks do not fit a star with 2 places"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(text, said):
    """A setting would be ignored, or the memory of the machine be used up."""
    with pytest.raises(UsageError, match=said):
        shape(text).network(4)


@pytest.fixture
def plan(tmp_path):
    cluster = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcdefgh"))
    files.write(tmp_path / "cluster.toml", cluster)
    files.write(tmp_path / "plan.json", search.plan(cluster, search.neutral_profile(), 8))
    return tmp_path / "plan.json"


def simulated(*argv):
    done = CliRunner().invoke(hocket, ["simulate", *map(str, argv), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_verb_simulates_a_plan_on_each_shape(plan, tmp_path):
    """Networks that nobody has could not be asked for from the command line."""
    steps = {}
    for text in (
        "star:8,1Gbit",
        "leaf-spine:2x4,1Gbit,oversubscription=8",
        "fat-tree:4,1Gbit",
        "torus:2x4,1Gbit",
    ):
        outcome = simulated("plan", plan, "--network", text)
        network = shape(text).network(8)
        steps[text] = outcome["step_s"]
        assert outcome["network"] == network.title
        busiest = outcome["loads"][0]["link"]
        assert busiest in {link.name for link in network.links}
    assert steps["leaf-spine:2x4,1Gbit,oversubscription=8"] > steps["star:8,1Gbit"], (
        "an uplink of half a host's rate"
    )
    found = files.read(plan, Plan)
    by_hand = flow.predict(found, star(8, bit_per_s=1e9), profile_of(found, None))
    assert steps["star:8,1Gbit"] == by_hand.outcome.step_s
    summed = simulated("plan", plan, "--network", "star:8,1Gbit", "--aggregate", "512:1024")
    assert "switch sums" in summed["network"]
    simulated("plan", plan, "--network", "fat-tree:4,1Gbit", "--trace", tmp_path / "trace")
    again = simulated("trace", tmp_path / "trace", "--network", "fat-tree:4,1Gbit")
    assert again["ratio"] == pytest.approx(1, rel=0.02)


def test_a_cluster_and_a_shape_are_not_mixed(plan):
    """One of two contradicting networks would be ignored."""
    cluster = ["--cluster", str(plan.with_name("cluster.toml"))]
    network = ["--network", "star:8,1Gbit"]
    for more, said in (
        ([], "one of --cluster and --network"),
        ([*cluster, *network], "one of --cluster and --network"),
        ([*network, "--bandwidth", "1Gbit"], "--bandwidth does not apply"),
        ([*network, "--shaped"], "--shaped does not apply"),
        ([*network, "--fidelity", "closed-form"], "simulated by flows"),
        (["--network", "star:8"], "is not a shape such as star:16,10Gbit"),
    ):
        done = CliRunner().invoke(hocket, ["simulate", "plan", str(plan), *more])
        assert done.exit_code != 0
        assert said in done.output + str(done.exception)
