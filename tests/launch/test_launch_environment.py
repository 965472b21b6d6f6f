"""Which rank a process is and where it meets the others, for each launcher's variables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import RendezvousError, UsageError
from hocket.job import slurm
from hocket.job.environment import PORT_COUNT, PORT_FIRST, identify
from hocket.job.store import address, interfaces
from hocket.start import hosts

HOCKET = {
    "HOCKET_RANK": "1",
    "HOCKET_WORLD": "4",
    "HOCKET_STORE": "10.0.0.1:7000",
    "HOCKET_SECRET": "ab" * 32,
}
TORCH = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "PMIX_NAMESPACE": "3405709313",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "6"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_TASKS_PER_NODE": "2(x3),1",
    "SLURM_JOB_NODELIST": "gpu[07-09],login",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
}
MASTER = {"MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "29500"}

TABLE = [
    ({}, ("no launcher", 0, 1, 0, 1), "127.0.0.1:0"),
    (HOCKET, ("hocket run", 1, 4, None, None), "10.0.0.1:7000"),
    (
        {**HOCKET, "HOCKET_LOCAL_RANK": "1", "HOCKET_LOCAL_WORLD": "2"},
        ("hocket run", 1, 4, 1, 2),
        "10.0.0.1:7000",
    ),
    ({**TORCH, **HOCKET, "RANK": "1"}, ("hocket run", 1, 4, None, None), "10.0.0.1:7000"),
    (TORCH, ("torchrun", 3, 4, 1, 2), None),
    ({**TORCH, "TORCHELASTIC_USE_AGENT_STORE": "False"}, ("torchrun", 3, 4, 1, 2), "node0:29501"),
    ({**TORCH, "HOCKET_STORE": "[fd00::1]:7"}, ("torchrun", 3, 4, 1, 2), "[fd00::1]:7"),
    ({"RANK": "0", "WORLD_SIZE": "2", **MASTER}, ("torchrun", 0, 2, None, None), "10.1.1.1:29501"),
    ({"RANK": "0", "WORLD_SIZE": "1"}, ("torchrun", 0, 1, None, None), "127.0.0.1:0"),
    (
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "fd00::1", "MASTER_PORT": "1"},
        ("torchrun", 0, 2, None, None),
        "[fd00::1]:2",
    ),
    (OPEN_MPI, ("Open MPI", 2, 3, 2, 3), "127.0.0.1:derived"),
    ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "3", **MASTER}, ("Open MPI", 2, 3, 2, 3), "10.1.1.1:29501"),
    ({**SLURM, **OPEN_MPI}, ("Open MPI", 2, 3, 2, 3), "gpu07:derived"),
    (MPICH, ("MPICH", 1, 2, 1, 2), "127.0.0.1:derived"),
    (SLURM, ("SLURM", 5, 7, 1, 2), "gpu07:derived"),
    (
        {**SLURM, "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NODELIST": "gpu08"},
        ("SLURM", 5, 6, 1, 2),
        "gpu08:derived",
    ),
    ({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "7"}, ("MPICH", 5, 7, 1, 2), "gpu07:derived"),
    ({"SLURM_NTASKS": "7", "SLURM_JOB_NODELIST": "gpu07"}, ("no launcher", 0, 1, 0, 1), "127.0.0.1:0"),
    ({**TORCH, "HOCKET_RANK": "", "HOCKET_WORLD": ""}, ("torchrun", 3, 4, 1, 2), None),
]


@pytest.mark.parametrize(("environment", "who", "where"), TABLE)
def test_each_launcher_is_understood(environment, who, where):
    """Under this launcher every process would train alone, or as the wrong rank."""
    me = identify(environment, parent=42)
    assert (me.launcher, me.rank, me.world, me.local_rank, me.local_world) == who
    if where is None or not where.endswith(":derived"):
        assert me.meeting.address == where
    else:
        host, port = address.split(me.meeting.address)
        assert host == where.removesuffix(":derived")
        assert PORT_FIRST <= port < PORT_FIRST + PORT_COUNT


REFUSED = [
    ({"RANK": "0"}, "RANK is set .* WORLD_SIZE is not"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set .* RANK is not"),
    ({"HOCKET_RANK": "0"}, "HOCKET_RANK is set .* HOCKET_WORLD is not"),
    ({"HOCKET_WORLD": "2", **TORCH}, "HOCKET_WORLD is set .* HOCKET_RANK is not"),
    ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not"),
    ({"SLURM_PROCID": "0"}, "SLURM_PROCID is set .* SLURM_STEP_NUM_TASKS is not"),
    ({**TORCH, "RANK": "4"}, "RANK is 4, but WORLD_SIZE is 4"),
    ({**TORCH, "RANK": "-1"}, "RANK: '-1' is not a count"),
    ({**TORCH, "RANK": "٣"}, "RANK: .* is not a count"),
    ({**TORCH, "WORLD_SIZE": "0"}, "WORLD_SIZE: 0 ranks"),
    ({**TORCH, "WORLD_SIZE": "999999"}, "WORLD_SIZE: .* WORLD_MAX|WORLD_SIZE: '999999'"),
    ({**TORCH, "LOCAL_RANK": "2"}, "LOCAL_RANK is 2, but this host has 2"),
    ({**TORCH, "LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE: 5 of 4"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "MASTER_ADDR is set .* MASTER_PORT is not"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_PORT is set .* MASTER_ADDR is not"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65535"}, "MASTER_PORT: '65535'"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, "nothing says where the 2 ranks .*\nhint: set HOCKET_STORE"),
    (
        {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        "hint: set HOCKET_STORE",
    ),
    ({"HOCKET_RANK": "0", "HOCKET_WORLD": "2"}, "hint: set HOCKET_STORE"),
    ({**HOCKET, "HOCKET_STORE": "10.0.0.1"}, "HOCKET_STORE: `10.0.0.1` is not of the form"),
    ({**HOCKET, "HOCKET_STORE": "fd00::1:7000"}, "HOCKET_STORE: .* is not of the form"),
    ({**HOCKET, "HOCKET_STORE": "a:70000"}, "HOCKET_STORE: .* the largest is 65535"),
    ({**HOCKET, "HOCKET_SECRET": "xyz"}, "HOCKET_SECRET is not hexadecimal"),
    ({**HOCKET, "HOCKET_SECRET": "abcd"}, "HOCKET_SECRET has 2 bytes"),
    ({**SLURM, "SLURM_NODEID": "4"}, "SLURM_NODEID is 4, but SLURM_TASKS_PER_NODE lists 4"),
    ({**SLURM, "SLURM_TASKS_PER_NODE": "2(x"}, "SLURM_TASKS_PER_NODE: "),
    ({**SLURM, "SLURM_JOB_NODELIST": "gpu[7-"}, "SLURM_JOB_NODELIST: "),
]


@pytest.mark.parametrize(("environment", "message"), REFUSED)
def test_contradictions_are_named(environment, message):
    """A half-set environment would hang the job instead of naming the variable."""
    with pytest.raises((UsageError, RendezvousError), match=message):
        identify(environment)


@given(
    st.dictionaries(
        st.sampled_from(sorted({**HOCKET, **TORCH, **OPEN_MPI, **MPICH, **SLURM})),
        st.text("0129[],-:ax", max_size=6),
    )
)
def test_no_environment_crashes(environment):
    """An odd variable would end in a traceback instead of a sentence."""
    try:
        me = identify(environment)
    except (UsageError, RendezvousError):
        return
    assert 0 <= me.rank < me.world


def test_the_secret_is_the_given_one_or_the_job_s():
    """Ranks of one job would refuse each other, or those of two jobs would mix."""
    assert identify(HOCKET).secret == bytes.fromhex("ab" * 32)
    first, second = identify(SLURM), identify({**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0"})
    assert (first.secret, first.meeting, first.job) == (second.secret, second.meeting, second.job)
    other = identify({**SLURM, "SLURM_JOB_ID": "4712"})
    assert other.secret != first.secret
    assert other.meeting != first.meeting
    larger = identify({**SLURM, "SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": "2(x4)"})
    assert larger.secret == first.secret  # else a wrong world size would read as a wrong secret


def test_mpich_ranks_of_two_jobs_on_one_host_do_not_meet():
    """Two `mpiexec` at once on a workstation would join each other's job."""
    one, two = (identify(MPICH, parent=parent) for parent in (100, 101))
    assert one.meeting != two.meeting
    assert one.secret != two.secret


names = st.from_regex(r"[a-z]([a-z-]{0,5}[a-z])?", fullmatch=True)


@st.composite
def bracketed(draw):
    """A host list's text and the hosts that it stands for."""
    texts, expected = [], []
    for _ in range(draw(st.integers(1, 4))):
        before, after = draw(names), draw(st.just("") | names)
        ranges = draw(
            st.lists(st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4)), max_size=3)
        )
        if not ranges:
            texts.append(before)
            expected.append(before)
            continue
        parts = [
            f"{first:0{width}d}" + (f"-{first + more:0{width}d}" if more else "")
            for first, more, width in ranges
        ]
        texts.append(f"{before}[{','.join(parts)}]{after}")
        for first, more, width in ranges:
            digits = max(width, len(str(first)))
            expected += [f"{before}{number:0{digits}d}{after}" for number in range(first, first + more + 1)]
    return ",".join(texts), expected


@given(bracketed())
def test_host_lists_expand_to_what_they_stand_for(case):
    """Ranks would look for the store on a host that does not exist."""
    text, expected = case
    assert slurm.expand(text) == expected


def test_two_brackets_multiply():
    """Clusters that number racks and nodes could not be used."""
    assert slurm.expand("r[1-2]n[08-09]") == ["r1n08", "r1n09", "r2n08", "r2n09"]


@given(st.text("a0129[],- ", max_size=25))
def test_no_host_list_crashes(text):
    """An odd node list would end in a traceback, or in an empty host name."""
    try:
        found = slurm.expand(text)
    except UsageError as error:
        assert str(error).startswith("SLURM_JOB_NODELIST")  # noqa: PT017
        return
    assert found
    assert all(found)


@pytest.mark.parametrize(
    "text", ["n[1-99999999]", "n[1-999][1-999]", "n[5-1]", "", "a,", "a b", "n[]", "n[[1]]", "n[1]]"]
)
def test_host_lists_that_cannot_be_are_refused(text):
    """A mistyped list would take all memory, or silently lose hosts."""
    with pytest.raises(UsageError):
        slurm.expand(text)


def test_hosts_files_are_read_and_placed():
    """Ranks would start on other hosts than the file says."""
    found = hosts.parse("# mine\n\na slots=2\nuser@b.example # fast\n  c\tslots=1\n")
    assert [(host.name, host.slots) for host in found] == [("a", 2), ("user@b.example", 1), ("c", 1)]
    assert hosts.place(found, None) == ["a", "a", "user@b.example", "c"]
    assert hosts.place(found, 3) == ["a", "a", "user@b.example"]
    with pytest.raises(UsageError, match="5 ranks, but the hosts have 4 slots"):
        hosts.place(found, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb slots=x", "line 2"),
        ("a slots=0", "line 1"),
        ("-oProxyCommand=evil", "line 1"),
        ("a slots=2\na", "line 2: `a` is there twice"),
        ("# none", "names no host"),
        ("a 4", "line 1"),
        ("a\n$(reboot)", r"line 2: '\$\(reboot\)' is not"),
        ("a;reboot slots=2", "line 1"),
    ],
)
def test_hosts_files_that_cannot_be_name_the_line(text, message):
    """A typing error in the hosts file would be hard to find, or become an option of ssh."""
    with pytest.raises(UsageError, match=message):
        hosts.parse(text)


@given(st.sampled_from(["10.0.0.1", "node-1.example", "::1", "fe80::1%eth0"]), st.integers(0, 65535))
def test_addresses_survive_their_text_form(host, port):
    """IPv6 addresses would be cut at the wrong colon."""
    assert address.split(address.join(host, port)) == (host, port)


def test_interfaces_are_found_by_what_the_user_says():
    """HOCKET_INTERFACE=lo, a subnet or a list would not work, or a mistyped name would not be told."""
    assert interfaces.chosen("lo") == ("127.0.0.1",)
    assert interfaces.chosen("10.9.8.7, lo") == ("10.9.8.7", "127.0.0.1")
    assert interfaces.chosen("127.0.0.0/8") == ("127.0.0.1",)
    with pytest.raises(UsageError, match=r"`nope9` .*\nhint: there are .*lo"):
        interfaces.chosen("nope9")
    with pytest.raises(UsageError, match="no subnet"):
        interfaces.chosen("10.0.0.1/8")


def test_all_interfaces_are_those_of_networks_that_all_share():
    """A container's bridge, which every host has with the same address, or one host's own network would be used."""
    a = ("127.0.0.1/8", "10.0.2.1/24", "172.17.0.1/16", "10.0.1.1/24", "192.168.0.1/24")
    b = ("127.0.0.1/8", "172.17.0.1/16", "10.0.1.2/24", "10.0.2.2/24", "fd00::1/64")
    assert interfaces.common(a, [a, b]) == ("10.0.1.1", "10.0.2.1")
    assert interfaces.common(b, [a, b]) == ("10.0.1.2", "10.0.2.2")
