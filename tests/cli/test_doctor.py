"""`hocket doctor`: what it says is so, and what does not work is said with what to do."""

import json
import sys
from pathlib import Path

import pytest

from hocket import extras
from hocket.errors import UsageError
from hocket.extras import EXTRAS
from hocket.job import private
from hocket.job.live.files import LiveJob, newest
from hocket.tools.doctor import finding, limits, machine, network, settings
from tests.support.commands import WITHOUT_EXTRAS, completed
from tests.support.groups import grouped

MAIN = "from hocket.cli.main import main\nmain()"


def doctor(source, **environment):
    ran = completed([sys.executable, "-c", source, "doctor", "--json"], **environment)
    return ran.returncode, json.loads(ran.stdout)


def test_it_runs_without_any_extra():
    code, said = doctor(WITHOUT_EXTRAS + MAIN)
    found = {each["name"]: each for each in said["findings"]}
    for name, extra in EXTRAS.items():
        assert found[name]["state"] == "missing"
        assert extras.install(extra) in found[name]["hint"]
    assert found["NCCL"]["state"] == "missing"
    assert code == (1 if said["broken"] else 0)
    assert all(each["hint"] for each in said["findings"] if each["state"] in ("missing", "broken")), said


def test_a_setting_that_does_not_parse_is_broken_and_the_others_are_listed():
    """A job would fail at its start on a variable that the doctor had called fine."""
    rows, wrong = settings.in_force(
        {"HOCKET_TIMEOUT_S": "soon", "HOCKET_THREADS": "2", "HOCKET_SECRET": "abcd", "HOCKET_TIMEOUTS": "1"}
    )
    now = {each.name: (each.now, each.source) for each in rows}
    assert now["HOCKET_THREADS"] == (2, "environment")
    assert now["HOCKET_TIMEOUT_S"] == (300.0, "environment")
    assert now["HOCKET_PLAN"] == (None, "default")
    assert now["HOCKET_SECRET"] == ("set", "environment")
    assert [(each.name, each.state) for each in wrong] == [
        ("HOCKET_TIMEOUT_S", "broken"),
        ("HOCKET_TIMEOUTS", "broken"),
    ]
    assert "rename it to HOCKET_TIMEOUT_S" in wrong[1].hint


def test_a_broken_setting_is_an_error_of_the_command():
    """A script would go on to start the job."""
    code, said = doctor("from hocket.cli.main import main\nmain()", HOCKET_STREAMS="many")
    assert code == 1
    broken = [each for each in said["findings"] if each["state"] == "broken"]
    assert [each["name"] for each in broken] == ["HOCKET_STREAMS"]
    assert "HOCKET_STREAMS: 'many' is not a whole number from 1" in broken[0]["detail"]


def test_memory_that_may_not_be_read_is_said(monkeypatch):
    """A container without the right to it would be called fine, and be slow."""
    monkeypatch.setattr(machine, "READ_PARENT", "print('errno 1')")
    found = {each.name: each for each in machine.findings()}["process_vm_readv"]
    assert found.state == "missing"
    assert "Operation not permitted" in found.detail
    assert "SYS_PTRACE" in found.hint


def test_the_probe_of_other_memory_reads_what_is_there(monkeypatch):
    """The check could not fail: it would accept whatever it is told."""
    monkeypatch.setattr(machine, "READ_PARENT", "print('00' * 8)")
    found = {each.name: each for each in machine.findings()}["process_vm_readv"]
    assert found.state == "missing"


@pytest.mark.parametrize(
    ("flags", "level"), [("fpu", ""), ("avx2 f16c", "AVX2"), ("avx2 f16c avx512f", "AVX2")]
)
def test_vector_instructions_are_those_that_kernels_ask_for(monkeypatch, flags, level):
    """Half of AVX-512 would be called all of it."""
    monkeypatch.setattr(Path, "read_text", lambda _self: f"processor: 0\nflags\t\t: {flags}\n")
    found = machine._instructions("x86_64")
    assert (found.state == "works") == bool(level)
    assert found.detail == level or not level


def test_limits_and_interfaces_are_listed():
    """Nobody would see that files may run out, or which address the wire takes."""
    names = {each.name for each in limits.findings()}
    assert {"open files", "locked memory", "/dev/shm"} <= names
    loopback = next(each for each in network.findings() if each.name == "lo")
    assert "127.0.0.1/8" in loopback.detail
    assert "MTU" in loopback.detail


def test_few_files_are_said(monkeypatch):
    """A job of many ranks would fail in the middle with `too many open files`."""
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _what: (256, 4096))
    found = next(each for each in limits.findings() if each.name == "open files")
    assert found.state == "missing"
    assert found.hint == "ulimit -n 4096"


def test_files_that_a_container_does_not_allow_are_asked_of_it(monkeypatch):
    """The hint would be to set what is set already."""
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _what: (64, 64))
    found = next(each for each in limits.findings() if each.name == "open files")
    assert "--ulimit" in found.hint


@pytest.mark.parametrize(
    ("own", "groups"),
    [
        ("0::/", {"memory.max": 3 << 29, "pids.max": 60}),
        ("0::/pod/step", {"pod/memory.max": 3 << 29, "pod/step/memory.max": "max", "pod/step/pids.max": 60}),
        (
            "4:memory:/of/host\n3:pids:/step",
            {"memory/memory.limit_in_bytes": 3 << 29, "pids/pids.max": 70, "pids/step/pids.max": 60},
        ),
    ],
)
def test_limits_of_a_container_are_said(monkeypatch, tmp_path, own, groups):
    """In a container, the memory and the processes of the whole machine would be called available."""
    monkeypatch.setattr(finding, "SYSTEM", tmp_path)
    grouped(tmp_path, own, groups)
    said = {each.name: each.detail for section in (machine, limits) for each in section.findings()}
    assert said["memory"].endswith("limited to 1.5 GiB")
    assert said["processes and threads"].endswith("limited to 60 by the control group")


def test_a_container_without_a_place_for_temporary_files_is_told_to_have_one(monkeypatch):
    """Training would fail somewhere in PyTorch."""
    monkeypatch.setattr(limits.tempfile, "tempdir", None)
    monkeypatch.setattr(limits.tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
    found = next(each for each in limits.findings() if each.name == "temporary files")
    assert found.state == "missing"
    assert "TMPDIR" in found.hint
    with pytest.raises(UsageError, match="TMPDIR"):
        private.directory()
    job = LiveJob(process=1, launches=True, store="localhost:1", secret="", command=())
    assert newest(job) == job


def test_a_system_that_does_not_allow_bbr_is_said(monkeypatch):
    """Between two sites, a job would be slow for losses that a setting of the system would let it bear."""

    class Refusing(network.socket.socket):
        def setsockopt(self, *asked):
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(network.socket, "socket", Refusing)
    found = {each.name: each for each in network.findings()}["TCP over long paths"]
    assert (found.state, found.detail.split(": l")[0]) == ("missing", "BBR: Operation not permitted")
    assert "tcp_allowed_congestion_control" in found.hint
