"""What is said of DLC traces, against the definitions on small traces that are computed here record by record."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.cli.trace import command
from hocket.tools.analysis import arrivals, messages
from hocket.tools.analysis.analyse import analyse
from hocket.tools.analysis.distribution import VALUES_MAX, Distribution
from hocket.tools.analysis.stragglers import stragglers
from hocket.tools.formats import dlc
from tests.support.dlc_files import FRAGMENT, header, line

BASE_US = 1_500_000_000_000_000


class Job:
    """A job of two workers and a server, with the moments that a test gives; files as each node would write them."""

    def __init__(self, keys=3):
        self.keys = keys
        self.worker = [[], []]
        self.server = []

    def row(self, rows, *fields, length=100):
        """`fields`: source, destination, operation, key, number, peer, dep_type, d_time, moment, what it waits for."""
        src, dst, what, key, num, peer, dep_type, d_time, at_us, waits = fields
        rows.append(
            (at_us, (src, dst, length, 1, f"OP:= {what}", f"{key}-{num}-{peer}", dep_type, d_time), waits)
        )

    def initialise(self, at_us):
        """The first pull of both workers, iteration -1."""
        for rank in (0, 1):
            num = 2 if rank == 0 else 0
            for key in range(self.keys):
                self.row(
                    self.worker[rank],
                    rank,
                    2,
                    "Pull_Send_Worker",
                    key,
                    num,
                    "s0",
                    0,
                    0,
                    at_us,
                    "-1",
                    length=28,
                )
                self.row(
                    self.worker[rank],
                    2,
                    rank,
                    "Pull_Recv_Worker",
                    key,
                    num + 1,
                    "s0",
                    3,
                    10,
                    at_us + 10,
                    f"{key}-{num}-s0",
                )

    def iteration(self, number, start_us, moments):
        """`moments[rank][key]`: (push, acknowledged, asked, pulled) after `start_us`; the server sees half of each way."""
        for rank in (0, 1):
            num = (4 if rank == 0 else 2) + 4 * number
            for key, (push, acknowledged, asked, pulled) in enumerate(moments[rank]):
                own, at = self.worker[rank], start_us
                self.row(
                    own,
                    rank,
                    2,
                    "Push_Send_Worker",
                    key,
                    num,
                    "s0",
                    4,
                    0,
                    at + push,
                    f"({num - 1}-s0.)",
                    length=1000 * (key + 1),
                )
                self.row(
                    own,
                    2,
                    rank,
                    "Push_Recv_Worker",
                    key,
                    num + 1,
                    "s0",
                    1,
                    acknowledged - push,
                    at + acknowledged,
                    f"{key}-{num}-s0",
                )
                self.row(
                    own,
                    rank,
                    2,
                    "Pull_Send_Worker",
                    key,
                    num + 2,
                    "s0",
                    2,
                    asked - acknowledged,
                    at + asked,
                    f"{key}-{num + 1}-s0",
                )
                self.row(
                    own,
                    2,
                    rank,
                    "Pull_Recv_Worker",
                    key,
                    num + 3,
                    "s0",
                    3,
                    pulled - asked,
                    at + pulled,
                    f"{key}-{num + 2}-s0",
                )
                peer, serves = f"w{rank}", 2 + 4 * number
                self.row(
                    self.server,
                    rank,
                    2,
                    "Push_Recv_Server",
                    key,
                    serves,
                    peer,
                    0,
                    0,
                    at + push + 5,
                    "-1",
                    length=1000 * (key + 1),
                )
                both = f"({serves}-w0.{serves}-w1.)"
                self.row(
                    self.server,
                    2,
                    rank,
                    "Push_Send_Server",
                    key,
                    serves + 1,
                    peer,
                    1,
                    7,
                    at + acknowledged - 5,
                    both,
                )
                self.row(
                    self.server,
                    rank,
                    2,
                    "Pull_Recv_Server",
                    key,
                    serves + 2,
                    peer,
                    0,
                    0,
                    at + asked + 1,
                    "-1",
                )
                self.row(
                    self.server,
                    2,
                    rank,
                    "Pull_Send_Server",
                    key,
                    serves + 3,
                    peer,
                    3,
                    3,
                    at + asked + 4,
                    f"{key}-{serves + 2}-{peer}",
                )

    def write(self, folder):
        """worker0.txt, worker1.txt, server0.txt."""
        files = {"worker0": self.worker[0], "worker1": self.worker[1], "server0": self.server}
        paths = []
        for name, unordered in files.items():
            rows = sorted(unordered, key=lambda row: row[0])
            text = "".join(
                line(number, *fields, *divmod(BASE_US + at, 1_000_000), waits)
                for number, (at, fields, waits) in enumerate(rows)
            )
            paths.append(folder / f"{name}.txt")
            paths[-1].write_text(header() + text)
        return paths


def test_the_papers_fragment():
    """The phases of FORMAT's definitions would be others: these are read off the fragment by hand."""
    found = analyse([FRAGMENT], strict=True)
    (phases,) = found.phases
    means = [
        each.mean_us
        for each in (
            phases.computation,
            phases.pure_computation,
            phases.overlapped,
            phases.communication,
            phases.waiting,
        )
    ]
    assert means == [819475 - 745385, 812819 - 745385, 819475 - 812819, 836906 - 812819, 836906 - 824158]
    assert phases.overlap_ratio == pytest.approx(6656 / (67434 + 24087))
    assert (found.sizes.shortest_bytes, found.sizes.longest_bytes, len(found.sizes.layers)) == (
        19,
        1600042,
        8,
    )
    assert found.volume.matrix_bytes() == [[0, 3449738], [3449648, 0]]
    (path,) = found.critical_paths
    # key 1 is pulled last: pushed at 819475, acknowledged 831145, asked 831419, pulled 836906
    assert [link.time.mean_us for link in path.links] == [74090, 11670, 274, 5487]
    assert sum(link.time.mean_us for link in path.links) == phases.iteration.mean_us
    assert path.last_layers[0].layer == 1
    assert [each.records for each in found.dependencies] == [8, 16, 16, 16, 8]
    assert found.dependencies[4].one_to_many == 8


moments = st.tuples(st.integers(500, 900), st.integers(1, 90), st.integers(0, 20), st.integers(1, 90))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_moments=st.lists(st.lists(moments, min_size=6, max_size=6), min_size=1, max_size=5))
def test_phases_and_servers_of_any_job(tmp_path, given_moments):
    """A number of the analysis would not be what its definition says."""
    job = Job()
    job.initialise(0)
    ended = [10, 10]
    expected = {name: ([], []) for name in ("pure", "overlapped", "communication", "waiting")}
    synchronisation, update, computation = [], [], ([], [])
    for number, flat in enumerate(given_moments):
        start = 100 + 2000 * number
        absolute = []
        for push, acknowledged, asked, pulled in flat:
            times = np.cumsum([push, acknowledged + 20, asked, pulled + 10]).tolist()
            absolute.append(tuple(times))
        rows = [absolute[:3], absolute[3:]]
        job.iteration(number, start, rows)
        for rank in (0, 1):
            pushes, pulls = [start + each[0] for each in rows[rank]], [start + each[3] for each in rows[rank]]
            expected["pure"][rank].append(min(pushes) - ended[rank])
            expected["overlapped"][rank].append(max(pushes) - min(pushes))
            expected["communication"][rank].append(max(pulls) - min(pushes))
            expected["waiting"][rank].append(max(pulls) - min(pulls))
            computation[rank].append(max(pushes) - ended[rank])
            ended[rank] = max(pulls)
        for key in range(3):
            arrived = [rows[rank][key][0] + 5 for rank in (0, 1)]
            answered = [rows[rank][key][1] - 5 for rank in (0, 1)]
            synchronisation.append(max(arrived) - min(arrived))
            update.append(min(answered) - max(arrived))
    found = analyse(job.write(tmp_path), strict=True)
    assert [each.node for each in found.phases] == [0, 1]
    for rank, phases in enumerate(found.phases):
        assert phases.iterations == len(given_moments)
        parts = (phases.pure_computation, phases.overlapped, phases.communication, phases.waiting)
        for name, part in zip(expected, parts, strict=True):
            assert part.mean_us == pytest.approx(np.mean(expected[name][rank]))
            assert part.negative == 0
    (server,) = found.servers
    assert server.synchronous
    assert server.search.mean_us == 3
    assert server.synchronisation.mean_us == pytest.approx(np.mean(synchronisation))
    # A server that answers the first worker before the last has pushed: such an update has no length.
    lengths = [each for each in update if each >= 0]
    assert (server.update is None) == (not lengths)
    if lengths:
        assert server.update.mean_us == pytest.approx(np.mean(lengths))
    negative = len(update) - len(lengths)
    assert [(each.what, each.node, each.durations) for each in found.negative] == (
        [("update", 2, negative)] if negative else []
    )
    assert len(found.notes) == bool(negative)
    for straggler in found.stragglers:
        assert straggler.mean_computation_us == pytest.approx(np.mean(computation[straggler.node]))
    assert sum(each.slowest_share for each in found.stragglers) == pytest.approx(1)


def test_durations_below_zero_are_counted_and_in_no_figure(tmp_path):
    """A push that leaves before the last pull has come would be a computation of no length, and shorten the mean of all."""
    job = Job(keys=2)
    job.initialise(0)
    job.iteration(0, 100, [[(500, 510, 511, 700), (500, 510, 511, 1400)]] * 2)
    # Key 0's gradient of the next iteration is there while key 1 is still on its way.
    job.iteration(1, 1000, [[(200, 210, 211, 300), (900, 910, 911, 1000)]] * 2)
    found = analyse(job.write(tmp_path), strict=True)
    for phases in found.phases:
        assert (phases.pure_computation.count, phases.pure_computation.negative) == (1, 1)
        assert phases.pure_computation.mean_us == 600 - 10
        assert (phases.computation.count, phases.computation.negative) == (2, 0)
        # Of the iteration that has all its parts.
        assert phases.overlap_ratio == 0
    assert [(each.what, each.node, each.durations) for each in found.negative] == [
        ("pure", 0, 1),
        ("pure", 1, 1),
    ]
    (note,) = found.notes
    assert note.startswith("2 durations are below zero and in no figure")
    assert "pure of node 0 1" in note
    assert "2 durations are below zero" in run("analyse", *sorted(tmp_path.iterdir()))


def test_a_job_whose_iterations_all_overlap_still_has_its_other_parts(tmp_path):
    """One part that cannot be told would take all others along."""
    job = Job(keys=2)
    job.initialise(0)
    job.iteration(0, 0, [[(5, 10, 11, 700), (8, 12, 13, 1400)]] * 2)
    (phases, _) = analyse(job.write(tmp_path), strict=True).phases
    assert phases.pure_computation is None
    assert phases.communication.mean_us == 1400 - 5
    assert phases.overlap_ratio is None


def test_arrivals_that_are_read_late_are_counted_once(tmp_path, monkeypatch):
    """A gap would be counted twice, and the mean between arrivals be too long."""
    monkeypatch.setattr(arrivals, "HELD_BACK", 2)
    counted = arrivals.ArrivalCount()
    for part in ([10, 20, 30, 40], [15, 50]):
        rows = np.zeros(len(part), list(messages.FIELDS))
        rows["code"], rows["time_ns"] = dlc.RECV, np.array(part) * 1000
        counted.add(rows)
    (node,) = counted.result()
    assert (counted.late, node.messages, node.mean_us) == (1, 5, 10)


def test_long_traces_are_cut_where_iterations_end(tmp_path, monkeypatch):
    """A long trace would say something else than the same records at once."""
    job = Job()
    job.initialise(0)
    for number in range(200):
        late = 30 * (number % 7)
        rows = [[(600 + late + key, 650 + late, 655 + late, 700 + late + key) for key in range(3)]] * 2
        job.iteration(number, 2000 * number + 100, rows)
    paths = job.write(tmp_path)
    whole = analyse(paths)
    monkeypatch.setattr(dlc, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(messages, "OPEN_ITERATIONS", 3)
    parts = analyse(paths)
    assert parts.notes == ()
    assert json.dumps(_plain(parts)) == json.dumps(_plain(whole))


def _plain(found):
    import msgspec

    return msgspec.to_builtins(found)


def test_an_asynchronous_server(tmp_path):
    """Updates of an asynchronous server would be looked for where only a synchronous one has them."""
    rows = [
        (0, 0, 2, 9, 1, "Push_Recv_Server", "0-2-w0", 0, 0, 1, 100, "-1"),
        (1, 2, 0, 9, 1, "Push_Send_Server", "0-3-w0", 1, 40, 1, 140, "0-2-w0"),
        (2, 1, 2, 9, 1, "Push_Recv_Server", "0-2-w1", 0, 0, 1, 500, "-1"),
        (3, 2, 1, 9, 1, "Push_Send_Server", "0-3-w1", 1, 60, 1, 560, "0-2-w1"),
    ]
    path = tmp_path / "server.txt"
    path.write_text(header() + "".join(line(*row) for row in rows))
    found = analyse([path])
    (server,) = found.servers
    assert server.synchronous is False
    assert server.synchronisation is None
    assert (server.update.mean_us, server.update.count) == (50, 2)
    assert [(each.worker, each.last_share) for each in found.lateness] == [(0, 0.0), (1, 1.0)]
    assert found.lateness[1].mean_after_first_us == 400


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0.001, 1))
def test_quantiles(values, share):
    """A distribution would be told wrong."""
    counted = Distribution()
    for part in np.array_split(np.array(values), 3):
        counted.add(part)
    expected = sorted(values)[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    assert counted.at(share) == expected
    assert counted.total == sum(values)


def test_many_different_values_are_kept_to_three_digits():
    """Memory would grow with the trace."""
    counted = Distribution()
    values = np.arange(VALUES_MAX * 3) + 10**9
    counted.add(values)
    assert counted.count == len(values)
    assert counted.at(0.5) == pytest.approx(np.median(values), rel=0.01)


def test_stragglers_of_one_are_none():
    """A worker would be compared with itself."""
    times = np.array([1, 2]), np.array([5, 6])
    assert stragglers({0: times}) == ()
    slow = stragglers({0: times, 1: (np.array([2, 3]), np.array([12, 7]))})
    assert [(each.iterations, each.slowest_share) for each in slow] == [(1, 0.0), (1, 1.0)]


def test_nobody_is_slower_than_a_median_that_did_not_compute():
    """A worker would be shown as a million times as slow as one that had no length."""
    idle = np.array([1, 2]), np.array([0, 6])
    busy = np.array([1, 2]), np.array([9_000, 6])
    assert [each.iterations for each in stragglers({0: idle, 1: idle, 2: busy})] == [1, 1, 1]
    assert stragglers({0: idle, 1: (idle[0], np.array([0, 0]))}) != ()
    assert stragglers({0: (idle[0], np.zeros(2)), 1: (idle[0], np.zeros(2))}) == ()


def run(*arguments):
    result = CliRunner().invoke(
        command, [str(each) for each in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def test_the_verb_says_what_is_not_there():
    """Zeros would be printed for what a trace does not hold."""
    text = run("analyse", FRAGMENT)
    assert "74.090 ms" in text
    assert "no server's file was given" in text
    tree = json.loads(run("analyse", FRAGMENT, "--json"))
    assert tree["phases"][0]["computation"]["mean_us"] == 74090
    assert tree["servers"] == []


def test_two_traces_are_compared(tmp_path):
    """Nobody would see what a change did."""
    other = tmp_path / "b.txt"
    other.write_text(FRAGMENT.read_text().replace("\t1600033\t", "\t1600133\t"))
    tree = json.loads(run("diff", FRAGMENT, other, "--json"))
    by_name = {each["quantity"]: each for each in tree["differences"]}
    assert by_name["sent_bytes"]["b"] - by_name["sent_bytes"]["a"] == 100
    assert by_name["worker 0: computation, mean_us"]["ratio"] == 1
    assert tree["layers_of_other_size"] == ["key 4"]
    assert "sent_bytes" in run("diff", FRAGMENT, other)
