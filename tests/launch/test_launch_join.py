"""Ranks as real processes find each other, or each says why not."""

import contextlib
import json
import os
import socket
import sys
import threading
import time

import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import RendezvousError
from hocket.job import rendezvous
from hocket.job.rendezvous import Member, join
from hocket.job.store.ledger import Ledger
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from tests.launch.processes import finish, start, write
from tests.support import warm

pytestmark = pytest.mark.members

RANK = """
import json, os, sys
from hocket.errors import Error
from hocket.job import rendezvous
rendezvous.__version__ = os.environ.get("FAKE_VERSION", rendezvous.__version__)
try:
    job = rendezvous.join()
except Error as error:
    sys.exit(f"REFUSED {error}")
with job:
    engine = job.engine()
    job.store.barrier("connected", job.rank, job.world, 20)
    engine.close()
    print(json.dumps([job.rank, job.world, job.local_rank, job.local_world, job.hosts, job.bind, job.name]))
"""

COUNTING_RANK = """
import os
from pathlib import Path
from hocket.job import rendezvous

STORE = f":{int(os.environ['HOCKET_STORE'].rpartition(':')[2]):04X}"

def connections():
    own = {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()]
    rows = [row for row in rows if not row[1].endswith(STORE) and not row[2].endswith(STORE)]
    return sum(row[3] == "01" and f"socket:[{row[9]}]" in own for row in rows)

with rendezvous.join() as job:
    engine = job.engine()
    job.store.barrier("connected", job.rank, job.world, 20)
    print(connections())
    job.store.barrier("counted", job.rank, job.world, 20)
    engine.close()
"""


@pytest.fixture
def script(tmp_path):
    return write(tmp_path, RANK)


def run(script, environments, **common):
    ranks = [start([sys.executable, script], **common, **each) for each in environments]
    return [finish(each) for each in ranks]


def by_hand(rank, world, port, **more):
    return {
        "HOCKET_RANK": str(rank),
        "HOCKET_WORLD": str(world),
        "HOCKET_STORE": f"127.0.0.1:{port}",
        "HOCKET_START_TIMEOUT_S": "20",
        **more,
    }


def test_ranks_started_by_hand_form_a_job(script, port):
    """A job could not be started without our launcher."""
    results = run(script, [by_hand(rank, 3, port) for rank in range(3)])
    assert [code for code, _, _ in results] == [0, 0, 0], results
    jobs = [json.loads(out) for _, out, _ in results]
    host = socket.gethostname()
    assert [job[:6] for job in jobs] == [[rank, 3, rank, 3, [host] * 3, "127.0.0.1"] for rank in range(3)]
    assert len({job[6] for job in jobs}) == 1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            {},
            {"TLS": "1"},
            "HOCKET_TLS is `0` (the default) on rank 0 on {host}, and `1` on rank 1 on {host}",
        ),
        (
            {"CHECKSUM": "0"},
            {},
            "HOCKET_CHECKSUM is `0` on rank 0 on {host}, and not set on rank 1 on {host}",
        ),
        (
            {"POLICY": "one/rules.py", "SERVERS": "1"},
            {"POLICY": "two/rules.py:Rules", "HELPERS": "1"},
            "HOCKET_HELPERS is `0` (the default) on rank 0 on {host}, and `1` on rank 1 on {host}; HOCKET_POLICY is "
            "`rules.py` on rank 0 on {host}, and `rules.py:Rules` on rank 1 on {host}; HOCKET_SERVERS is `1` on rank 0",
        ),
    ],
)
def test_settings_that_differ_are_told_on_every_rank(script, port, first, second, said):
    """Each rank would wait out its time for what the other never does, and blame it."""
    common = {"HOCKET_SECRET": "ab" * 32}
    own = [{f"HOCKET_{name}": value for name, value in each.items()} for each in (first, second)]
    results = run(script, [by_hand(rank, 2, port, **own[rank]) for rank in range(2)], **common)
    said = said.format(host=socket.gethostname())
    assert all(
        code == 1 and said in err and "set it alike on all ranks" in err for code, _, err in results
    ), results


def test_a_wrong_secret_is_told_on_both_sides(script, port):
    """Rank 0 would wait out its whole start for a rank that gave up at once."""
    secrets = {0: "ab" * 32, 1: "cd" * 32}
    results = run(
        script,
        [
            by_hand(rank, 2, port, HOCKET_SECRET=secrets[rank], HOCKET_START_TIMEOUT_S="60")
            for rank in range(2)
        ],
    )
    (_, _, zero), (_, _, one) = results
    assert [code for code, _, _ in results] == [1, 1], results
    assert "REFUSED rank 1 has not come, but from 127.0.0.1:" in zero, results
    assert "does not know this job's secret" in zero, results
    assert "HOCKET_SECRET differs" in one, results


def test_two_jobs_at_one_address_are_told(script, port):
    """Ranks of one would train with those of the other: without a secret, nothing tells them apart."""
    # The first of them ends as soon as the second has come.
    results = run(script, [by_hand(0, 2, port, HOCKET_START_TIMEOUT_S="60") for _ in range(2)])
    assert [code for code, _, _ in results] == [1, 1], results
    assert all("two processes are rank 0" in err for _, _, err in results), results
    assert sum(f"REFUSED two jobs meet at 127.0.0.1:{port}" in err for _, _, err in results) == 1, results


def test_two_jobs_are_told_whichever_of_them_is_faster(script, port):
    """The process that serves the store may come to it after the other one."""
    secret = "ab" * 32
    with Server(("127.0.0.1",), port, bytes.fromhex(secret), Ledger()):
        ((code, _, err),) = run(script, [by_hand(0, 2, port, HOCKET_SECRET=secret)])
        assert (code, f"REFUSED two jobs meet at 127.0.0.1:{port}: two processes are rank 0" in err) == (
            1,
            True,
        ), err
        with (
            Store(f"127.0.0.1:{port}", bytes.fromhex(secret), rank=0, who="rank 0", timeout_s=5) as store,
            pytest.raises(RendezvousError, match=r"two processes are rank 0: .*, and the one that serves"),
        ):
            store.gather("x", 0, 2, "y", 5)


def test_ranks_without_a_secret_that_run_other_scripts_are_told(tmp_path, script, port):
    other = write(tmp_path, RANK, "evaluate.py")
    started = [
        start([sys.executable, path], **by_hand(rank, 2, port)) for rank, path in enumerate((script, other))
    ]
    results = [finish(each) for each in started]
    assert all("runs `evaluate.py`, and rank 0 on" in err for _, _, err in results), results
    started = [
        start([sys.executable, script, f"--seed={seed}", "--rank", str(rank)], **by_hand(rank, 2, port))
        for rank, seed in enumerate((7, 8))
    ]
    (code, _, zero), (_, _, one) = [finish(each) for each in started]
    assert code == 0, zero
    assert "`rank.py` runs with other arguments than on rank 0" in zero, zero
    assert "other arguments" not in one, one


def test_settings_of_a_rank_alone_may_differ(script, port):
    """Ranks of a cluster whose hosts have other interfaces, caches and files could not meet."""
    own = {
        "HOCKET_THREADS": "2",
        "HOCKET_TIMEOUT_S": "7",
        "HOCKET_CACHE": "/tmp/elsewhere",
        "HOCKET_PLAN": "x",
    }
    results = run(script, [by_hand(0, 2, port), by_hand(1, 2, port, **own)])
    assert [code for code, _, _ in results] == [0, 0], results


@pytest.mark.parametrize(
    "variables",
    [
        {"rank": "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        {"rank": "PMI_RANK", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
        {
            "rank": "SLURM_PROCID",
            "SLURM_NTASKS": "2",
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_JOB_ID": "job",
        },
    ],
)
def test_ranks_of_other_launchers_form_a_job(script, variables):
    """`mpirun` and `srun` would start jobs whose ranks never meet."""
    own = f"{os.getpid()}-{time.monotonic_ns()}"  # another job's port than that of a test run beside this one
    common = {name: value for name, value in variables.items() if name != "rank"}
    common |= (
        {"PMIX_NAMESPACE": own, "SLURM_STEP_ID": own}
        if variables["rank"] != "SLURM_PROCID"
        else {"SLURM_STEP_ID": own}
    )
    results = run(script, [{variables["rank"]: str(rank)} for rank in range(2)], **common)
    assert [code for code, _, _ in results] == [0, 0], results


def test_ranks_of_torchrun_form_a_job(tmp_path):
    """`torchrun train.py` would collide with torchrun's own store, or never meet."""
    pytest.importorskip("torch")
    script = write(
        tmp_path,
        RANK.replace("join()", "join(publish=publish)").replace(
            "import json", "from hocket.torch.rendezvous import publish\nimport json", 1
        ),
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = f"--master-port={free.getsockname()[1]}"
    code, out, err = finish(start(warm.torchrun(["--nproc-per-node=2", port], script)), 60)
    assert code == 0, err
    assert sorted(each[0] for each in documents(out)) == [0, 1]


def documents(text):
    """Ranks of torchrun share a pipe: what they print may stand on one line, and line ends may come late."""
    decoder = json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]


def test_a_world_size_mismatch_is_told_on_every_rank(script, port):
    """Ranks of an inconsistent job would wait for each other until the time-out."""
    results = run(script, [by_hand(rank, 8 if rank == 3 else 4, port) for rank in range(4)])
    assert all(code == 1 and "REFUSED" in err for code, _, err in results), results
    assert all("was started with world size" in err and "rank 3 on" in err for _, _, err in results), results


def test_a_rank_that_exists_twice_is_told_on_every_rank(script, port):
    """A job with rank 1 twice would wait for the missing rank until the time-out."""
    results = run(script, [by_hand(rank, 3, port) for rank in (0, 1, 1)])
    assert all(code == 1 and "two processes are rank 1" in err for code, _, err in results), results


def test_another_version_is_told_on_every_rank(script, port):
    """Ranks with different wire formats would fail in odd ways much later."""
    results = run(script, [by_hand(0, 2, port), by_hand(1, 2, port, FAKE_VERSION="9.9")])
    assert all(code == 1 and "rank 1 on" in err and "runs Hocket 9.9" in err for code, _, err in results), (
        results
    )


def test_ranks_connect_as_rank_0_has_measured(tmp_path, port):
    """On a cloud that limits each connection, pairs without rank 0 would have only one, as the file is on its machine."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abc")
    measured = Cluster(hosts=hosts, streams=((1, 1, 2), (1, 1, 4), (2, 4, 1)))
    files.write(tmp_path / "cluster.json", measured)
    script = write(tmp_path, COUNTING_RANK)
    environments = [by_hand(rank, 3, port, HOCKET_HOST="abc"[rank]) for rank in range(3)]
    environments[0]["HOCKET_CLUSTER"] = str(tmp_path / "cluster.json")
    results = run(script, environments)
    assert [json.loads(out) for _, out, _ in results] == [1 + 2, 1 + 4, 2 + 4], results


def test_a_missing_rank_is_named(script, port):
    """Nobody would know which machine to look at."""
    late = {"HOCKET_START_TIMEOUT_S": "1.5"}
    results = run(script, [by_hand(rank, 4, port, **late) for rank in (0, 2)])
    assert all("ranks 1, 3 of 4 did not come" in err for _, _, err in results), results


def test_a_taken_address_is_told(script, port):
    """Rank 0 would fail with a bare errno and the others hang."""
    with socket.create_server(("127.0.0.1", port)) as other:

        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    other.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        results = run(script, [by_hand(0, 2, port), by_hand(1, 2, port, HOCKET_START_TIMEOUT_S="1")])
        other.shutdown(socket.SHUT_RDWR)
        hanging_up.join(10)
    assert "the store cannot listen" in results[0][2]
    assert "127.0.0.1" in results[1][2]
    assert all(code == 1 and "hint: " in err for code, _, err in results), results


def test_a_launcher_that_is_gone_is_told_soon(script, port):
    """Ranks that outlive their launcher would wait a minute for its store."""
    ((code, _, err),) = run(script, [by_hand(1, 2, port, HOCKET_STORE_SERVED="1")])
    assert code == 1
    assert f"nobody listens at 127.0.0.1:{port}" in err


def test_a_lone_process_is_a_job_of_one():
    """`python train.py` would not work without a launcher."""
    before = threading.active_count()
    with join(environment={}) as job:
        assert (job.rank, job.world, job.local_rank, job.local_world, job.bind) == (0, 1, 0, 1, "127.0.0.1")
        assert job.store.gather("x", 0, 1, "y", 1) == ["y"]
        job.engine().close()
    assert threading.active_count() == before


def test_torchrun_without_a_way_to_publish_says_what_to_do():
    """A script that joins by itself under torchrun would collide with torchrun's store."""
    environment = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "9",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with pytest.raises(RendezvousError, match=r"hint: join through hocket\.torch"):
        join(environment=environment)


def member(place, address, name="h"):
    return Member(
        host=name,
        place=place,
        identity=place,
        clock="c",
        process=1,
        version="1",
        address=address,
        networks=(),
        session="s",
    )


def test_the_wire_binds_where_others_reach_it(monkeypatch):
    """Ranks would listen on loopback while their peers are on other machines."""
    monkeypatch.setattr(rendezvous.addresses, "towards", {"10.0.0.2": "10.0.0.1", "10.0.0.3": None}.get)
    alone = [member("a", "10.0.0.1"), member("a", "10.0.0.1")]
    assert rendezvous._bind(1, alone) == "127.0.0.1"
    spread = [member("a", "127.0.0.1"), member("b", "10.0.0.2")]
    assert rendezvous._bind(0, spread) == "10.0.0.1"
    assert rendezvous._bind(1, spread) == "10.0.0.2"
    with pytest.raises(RendezvousError, match="hint: set HOCKET_INTERFACE"):
        rendezvous._bind(0, [member("a", "127.0.0.1"), member("b", "10.0.0.3")])
