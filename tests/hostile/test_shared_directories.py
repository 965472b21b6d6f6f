"""Other users of a machine know the names of our files in directories that all share: none of theirs is followed or believed."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from hocket.artefacts import writing
from hocket.errors import UsageError
from hocket.job import private
from hocket.job.known import cache
from hocket.job.known.cache import Cache
from hocket.start import leash, running
from hocket.tools.testbed import keeper
from tests.support.commands import completed

SOMEBODY = 65534
"""A user that runs nothing here."""


def link_to_own(path, own):
    own.mkdir(mode=0o700)
    path.symlink_to(own)


def of_somebody(path, _own):
    path.mkdir(mode=0o700)
    os.chown(path, SOMEBODY, SOMEBODY)


def readable(path, _own):
    path.mkdir()
    path.chmod(0o755)


def plain_file(path, _own):
    path.write_text("")


def dangling(path, own):
    path.symlink_to(own)


@pytest.fixture(params=[link_to_own, of_somebody, readable, plain_file, dangling])
def laid(request, tmp_path, monkeypatch):
    """The user's directory as somebody else has laid it."""
    if request.param is of_somebody and os.getuid() != 0:
        pytest.skip("only root can give a directory to somebody else")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / f"hocket-{os.getuid()}"
    request.param(path, tmp_path / "elsewhere")
    return path


def test_a_directory_that_somebody_else_has_laid_is_refused(laid):
    """A file of root's would be overwritten through a link, and a forged command be run."""
    for use in (private.directory, running.running, keeper.state, keeper.state_file):
        with pytest.raises(UsageError, match=r"is not a directory that only you can use[^\n]*\nhint: "):
            use()
    assert not laid.is_symlink() or not list(laid.parent.glob("elsewhere/*"))


def test_a_forged_testbed_is_not_shown(tmp_path):
    """`hocket testbed show` prints commands to copy: these would be somebody else's."""
    own = tmp_path / "elsewhere"
    own.mkdir(mode=0o700)
    (tmp_path / f"hocket-{os.getuid()}").symlink_to(own)
    host = {"name": "a", "rack": "r", "address": "1.2.3.4", "bandwidth_bit_per_s": 1, "command": ["rm"]}
    forged = json.dumps({"pid": os.getpid(), "hosts": [host]})
    (own / "testbed.json").write_text(forged)
    ran = completed(
        [sys.executable, "-c", "from hocket.cli.main import main; main()", "testbed", "show"],
        TMPDIR=str(tmp_path),
        XDG_RUNTIME_DIR=str(own),
    )
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "is not a directory that only you can use" in ran.stderr
    assert (own / "testbed.json").read_text() == forged


def test_what_is_no_state_is_a_testbed_that_is_not_up(tmp_path, monkeypatch):
    """`hocket testbed up` would end in a traceback until the user removes a file that nobody has told of."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for content in (b"", b"\xff", b"[]", b'{"pid": "x"}', b"[" * 100_000, b'{"pid": 1, "hosts": 3}'):
        keeper.state_file().write_bytes(content)
        assert keeper.state() is None
        assert not keeper.state_file().exists()


def test_no_link_is_written_through_where_the_name_can_be_told(tmp_path):
    """Results in a directory of all users would be written into a file of this user's choice of somebody else's."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    output = tmp_path / "plan.json"
    for name in (f".plan.json.{os.getpid()}", "plan.new", "plan.json.new", ".plan.json"):
        (tmp_path / name).symlink_to(victim)
    writing.write(output, b"{}")
    assert (output.read_bytes(), victim.read_text()) == (b"{}", "precious")
    assert output.stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    """A full disk would cost the plan that was there, and leave a hidden file each time."""
    output = tmp_path / "plan.json"
    output.write_text("old")
    with pytest.raises(OSError, match="full"), writing.replacing(output) as partial:
        partial.write_text("half")
        raise OSError("full")
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
    assert output.read_text() == "old"


def test_what_is_no_plain_file_is_written_and_not_replaced(tmp_path):
    """`-o /dev/stdout` as root would remove the device for all programs of the machine."""
    pipe, target = tmp_path / "pipe", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing.write(pipe, b"x")
    assert os.read(reader, 9) == b"x"
    os.close(reader)
    assert pipe.is_fifo()
    (tmp_path / "link").symlink_to(target)
    writing.write(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"x"


def test_the_output_of_ranks_goes_into_no_file_of_somebody_elses_choice(tmp_path):
    """A rank that outlives its launcher would append its output to a file through a link."""
    victim, link, log = tmp_path / "victim", tmp_path / "j.rank0.log", tmp_path / "j.rank1.log"
    victim.write_text("precious")
    link.symlink_to(victim)
    leash._append(str(link), b"said")
    leash._append(str(log), b"said")
    leash._append(str(log), b" more")
    assert victim.read_text() == "precious"
    assert log.read_bytes() == b"said more"
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("rights", [0o777, 0o770, 0o702])
def test_a_cache_that_others_may_write_to_is_not_used(rights, tmp_path, caplog):
    """Programs of somebody else's making would run in this user's jobs: their digests are right."""
    theirs = Cache(tmp_path / "cache", 10_000)
    name = cache.key(b"program")
    assert theirs.put(name, b"forged")
    theirs.directory.chmod(rights)
    ours = Cache.of(_settings(theirs.directory))
    assert ours.get(name) is None
    assert not ours.put(cache.key(b"other"), b"compiled")
    with ours.locked(name, 1.0) as held:
        assert not held
    assert f"hint: chmod go-w {theirs.directory}" in caplog.text
    theirs.directory.chmod(0o755)
    assert ours.get(name) == b"forged"


def _settings(directory: Path):
    from hocket.settings import Settings

    return Settings(cache=str(directory))


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
