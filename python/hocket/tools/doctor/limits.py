"""Limits of this process and of the kernel's sockets, and the cache of compiled programs and of knowledge."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hocket.job.private import TEMPORARY
from hocket.tools.doctor.finding import Finding, Section, group_limit
from hocket.tools.doctor.knowledge import cache

_finding = Section("limits")
SHARED = "/dev/shm"  # noqa: S108  # its size is asked for, nothing is put there
FILES_MIN = 1024
"""Least number of open files: a rank holds a descriptor per connection and a few per neighbour; scripts add data files."""
BUFFER_BYTES_MIN = 212_992
"""Least limit of a socket's buffer: Linux's default."""


def findings() -> Iterable[Finding]:
    """Yield findings on open files, locked memory, processes, `/dev/shm`, temporary files, the cache and socket buffers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FILES_MIN
    text = f"{_shown(soft)} (at most {_shown(hard)})" + ("" if enough else ": too few for large jobs")
    yield _finding("open files", enough, text, _more_files(hard))
    locked, processes = (
        resource.getrlimit(each)[0] for each in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NPROC)
    )
    text = "unlimited" if locked < 0 else f"{locked >> 10:,} KiB"
    yield _finding("locked memory", True, f"{text}; Hocket locks none")
    group = group_limit("pids", "pids.max", "pids.max")
    text = _shown(processes) + (f", limited to {group:,} by the control group" if group else "")
    yield _finding("processes and threads", True, text)
    yield _finding(SHARED, True, _shared())
    yield _temporary()
    yield _cache()
    for name in ("wmem_max", "rmem_max"):
        path = Path("/proc/sys/net/core") / name
        if not path.exists():  # a container's network namespace does not show them
            continue
        size_bytes = int(path.read_text())
        enough = size_bytes >= BUFFER_BYTES_MIN
        text = f"{size_bytes:,} bytes" + ("" if enough else ": long paths do not fill")
        yield _finding(f"net.core.{name}", enough, text, f"sysctl net.core.{name}={BUFFER_BYTES_MIN}")


def _cache() -> Finding:
    kept = cache()
    entries = kept.entries()
    held = sum(stat.st_size for _, stat in entries)
    place = next(each for each in (kept.directory, *kept.directory.parents) if each.exists())
    writable = place.is_dir() and os.access(place, os.W_OK)
    text = f"{kept.directory}: {len(entries)} entries, {held / (1 << 20):.1f} MiB"
    if not writable:
        text += ", cannot be written: every rank compiles its programs itself"
    return _finding("cache", writable, text, "HOCKET_CACHE=DIRECTORY")


def _more_files(hard: int) -> str:
    if 0 <= hard < FILES_MIN:
        return "`nofile` in /etc/security/limits.conf; of a container: --ulimit nofile=65536:65536"
    return f"ulimit -n {FILES_MIN if hard < 0 else min(hard, 65_536)}"


def _temporary() -> Finding:
    name = "temporary files"
    try:
        return _finding(name, True, tempfile.gettempdir())
    except OSError as error:
        return _finding(name, False, f"{error.strerror}; PyTorch's optimizers need one", TEMPORARY)


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _shared() -> str:
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return "not there; Hocket needs none, workers of PyTorch's data loaders do"
    size_mib = found.f_frsize * found.f_blocks / (1 << 20)
    return f"{size_mib:,.0f} MiB; Hocket uses none, workers of PyTorch's data loaders do"
