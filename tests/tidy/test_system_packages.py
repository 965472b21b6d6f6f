"""Set-up on machines of all kinds: what is installed from the system, and what is said where nothing may be."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system-packages"
CHECKS = (
    "g++ ninja-build fping libfabric-bin libfabric-dev slurmctld slurmd slurm-client munge prometheus dropbear-bin openssh-client"
    " python3-simgrid"
)


@pytest.fixture
def machine(tmp_path):
    """Runs the script where only these commands exist; what `apt-get` was asked for is in `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def run(*arguments, **commands):
        for name, body in {"python3": "exit 1", **commands}.items():
            path = folder / name.replace("apt_", "apt-")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        done = subprocess.run(
            ["/bin/bash", str(SCRIPT), *arguments],
            cwd=tmp_path,
            env={"PATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        calls = tmp_path / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_a_user_is_told_what_is_missing(machine):
    """Set-up would fail for everybody who is not root, or say nothing of the tests that it leaves out."""
    done, calls = machine(id="echo 1000", apt_get="echo $@ >> calls")
    assert (done.returncode, calls) == (0, [])
    assert "please install: iproute2 util-linux gcc libc6-dev" in done.stderr
    said = f"not installed: {CHECKS} (tests that need them"
    assert said in done.stderr


def test_the_demo_needs_no_checks(machine):
    """Who wants to see the demo would wait for what only tests use."""
    done, calls = machine("testbed", id="echo 0", apt_get="echo $@ >> calls", ip="", tc="", cc="")
    assert (done.returncode, done.stderr) == (0, "")
    assert calls[-1].split()[-1] == "util-linux"


@pytest.mark.parametrize("fails", ["update", "install"])
def test_without_a_network_set_up_goes_on(machine, fails):
    """A machine without a network could not be set up at all."""
    done, _ = machine(id="echo 0", apt_cache="exit 0", apt_get=f'[ "$1" != {fails} ]')
    assert done.returncode == 0
    assert f"not installed: {CHECKS}" in done.stderr


def test_what_a_distribution_lacks_does_not_keep_the_rest_out(machine):
    """One package of another name would leave all checks skipped."""
    done, calls = machine(
        id="echo 0", apt_cache='[ "$2" = fping ]', apt_get="echo $@ >> calls", ip="", tc="", cc="", unshare=""
    )
    assert done.returncode == 0
    assert calls[-1].split()[-2:] == ["util-linux", "fping"]
    assert "no package python3-simgrid here" in done.stderr


def test_nothing_is_asked_for_where_all_is_there(machine):
    """Each set-up would bring the lists of packages up to date."""
    names = "ip tc unshare nsenter setpriv cc c++ ninja fping fi_info slurmctld slurmd munged prometheus promtool dropbear ssh"
    names += " python3"
    there = dict.fromkeys(names.split(), "exit 0")
    done, calls = machine(id="echo 0", apt_get="echo $@ >> calls", **there)
    assert (done.returncode, calls, done.stderr) == (0, [], "")
