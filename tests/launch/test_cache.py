"""The cache of compiled programs: a file that is not what was put there must never be taken for it."""

import os
import threading

import pytest

from hocket.job.known import cache
from hocket.job.known.cache import DIGEST_BYTES, SUFFIX, UNFINISHED, Cache

NAME = cache.key(b"program")


@pytest.fixture
def kept(tmp_path):
    return Cache(tmp_path / "cache", 10_000)


def test_what_was_put_is_there(kept):
    """Every start of a job would compile again."""
    assert kept.get(NAME) is None
    assert kept.put(NAME, b"compiled")
    assert kept.get(NAME) == b"compiled"
    assert kept.directory.stat().st_mode & 0o077 == 0, "others could write what this user's jobs run"


@pytest.mark.parametrize("at", [0, DIGEST_BYTES - 1, DIGEST_BYTES, -1])
def test_a_damaged_entry_is_found_and_removed(kept, at):
    """A rank would run a program that nobody proved."""
    kept.put(NAME, b"compiled")
    path = kept.directory / (NAME + SUFFIX)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    assert kept.get(NAME) is None
    assert not path.exists()


@pytest.mark.parametrize("length", [0, 5, DIGEST_BYTES, DIGEST_BYTES + 3])
def test_an_entry_that_breaks_off_is_found(kept, length):
    """A full disk, or a machine that lost power, would leave half a program."""
    kept.put(NAME, b"compiled")
    path = kept.directory / (NAME + SUFFIX)
    path.write_bytes(path.read_bytes()[:length])
    assert kept.get(NAME) is None


def test_it_stays_within_its_size_and_keeps_what_is_used(kept):
    """The user's disk would fill up."""
    for at in range(20):
        assert kept.put(cache.key(bytes([at])), bytes(900))
        os.utime(kept.directory / (cache.key(bytes([at])) + SUFFIX), ns=(at, at))
        if at == 9:
            kept.get(cache.key(bytes([3])))
    assert sum(stat.st_size for _, stat in kept.entries()) <= kept.bytes_max
    assert kept.get(cache.key(bytes([3]))) is not None, "it was used last"
    assert kept.get(cache.key(bytes([4]))) is None
    assert not kept.put(NAME, bytes(20_000))


def test_many_entries_are_kept_with_one_look_through_the_directory(kept, monkeypatch):
    """64 ranks of a host would all stand still after a loss while the one that compiles lists the directory 63 times."""
    looks = []
    entries = Cache.entries
    monkeypatch.setattr(Cache, "entries", lambda self: looks.append(self) or entries(self))
    contents = {cache.key(bytes([at])): bytes([at]) * 900 for at in range(8)}
    assert kept.put_all(contents)
    assert len(looks) == 1
    assert [kept.get(name) for name in contents] == list(contents.values())
    assert not kept.put_all({NAME: bytes(20_000), cache.key(b"small"): b"small"})
    assert (kept.get(NAME), kept.get(cache.key(b"small"))) == (None, b"small")
    assert kept.put_all({cache.key(b"more", bytes([at])): bytes(900) for at in range(12)})
    assert sum(stat.st_size for _, stat in kept.entries()) <= kept.bytes_max


def test_writers_at_the_same_time_leave_one_whole_entry(kept):
    """Ranks of two jobs that start together would read each other's halves."""
    contents = [bytes([at]) * 3000 for at in range(8)]
    seen = []

    def write(content):
        for _ in range(30):
            kept.put(NAME, content)
            seen.append(kept.get(NAME))

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= set(contents)
    assert not list(kept.directory.glob(f"*{UNFINISHED}"))


def test_a_directory_that_cannot_be_written_is_no_failure(tmp_path):
    """A job on a machine without a home would not start."""
    (tmp_path / "file").write_text("in the way")
    kept = Cache(tmp_path / "file", 1000)
    assert not kept.put(NAME, b"compiled")
    assert kept.get(NAME) is None


def test_parts_of_a_key_are_told_apart():
    """Two programs would share an entry."""
    assert (
        len({cache.key(b"ab", b"c"), cache.key(b"a", b"bc"), cache.key(b"abc"), cache.key(b"abc", b"")}) == 4
    )
