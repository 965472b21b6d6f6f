"""Limits of this process and of the kernel's sockets, and the cache of compiled programs and of knowledge."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hocket.job.private import TEMPORARY
from hocket.tools.doctor.finding import Finding, group_limit
from hocket.tools.doctor.knowledge import cache

SECTION = "limits"
SHARED = "/dev/shm"  # noqa: S108  # its size is asked for, nothing is put there
FILES_MIN = 1024
"""Least number of open files: a rank holds a descriptor per connection and a few per neighbour; scripts add data files."""
BUFFER_BYTES_MIN = 212_992
"""Least limit of a socket's buffer: Linux's default."""


def findings() -> Iterable[Finding]:
    """Yield findings on open files, locked memory, processes, `/dev/shm`, temporary files, the cache and socket buffers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FILES_MIN
    yield Finding(
        section=SECTION,
        name="open files",
        state="works" if enough else "missing",
        detail=f"{_shown(soft)} (at most {_shown(hard)})" + ("" if enough else ": too few for large jobs"),
        hint="" if enough else _more_files(hard),
    )
    locked, processes = (
        resource.getrlimit(each)[0] for each in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NPROC)
    )
    text = "unlimited" if locked < 0 else f"{locked >> 10:,} KiB"
    yield _works("locked memory", f"{text}; Hocket locks none")
    group = group_limit("pids", "pids.max", "pids.max")
    yield _works(
        "processes and threads",
        _shown(processes) + (f", limited to {group:,} by the control group" if group else ""),
    )
    yield _works(SHARED, _shared())
    yield _temporary()
    yield _cache()
    for name in ("wmem_max", "rmem_max"):
        path = Path("/proc/sys/net/core") / name
        if not path.exists():  # a container's network namespace does not show them
            continue
        size_bytes = int(path.read_text())
        enough = size_bytes >= BUFFER_BYTES_MIN
        yield Finding(
            section=SECTION,
            name=f"net.core.{name}",
            state="works" if enough else "missing",
            detail=f"{size_bytes:,} bytes" + ("" if enough else ": long paths do not fill"),
            hint="" if enough else f"sysctl net.core.{name}={BUFFER_BYTES_MIN}",
        )


def _cache() -> Finding:
    kept = cache()
    entries = kept.entries()
    held = sum(stat.st_size for _, stat in entries)
    place = next(each for each in (kept.directory, *kept.directory.parents) if each.exists())
    writable = place.is_dir() and os.access(place, os.W_OK)
    return Finding(
        section=SECTION,
        name="cache",
        state="works" if writable else "missing",
        detail=f"{kept.directory}: {len(entries)} entries, {held / (1 << 20):.1f} MiB"
        + ("" if writable else ", cannot be written: every rank compiles its programs itself"),
        hint="" if writable else "HOCKET_CACHE=DIRECTORY",
    )


def _more_files(hard: int) -> str:
    if 0 <= hard < FILES_MIN:
        return "`nofile` in /etc/security/limits.conf; of a container: --ulimit nofile=65536:65536"
    return f"ulimit -n {FILES_MIN if hard < 0 else min(hard, 65_536)}"


def _temporary() -> Finding:
    try:
        return _works("temporary files", tempfile.gettempdir())
    except OSError as error:
        return Finding(
            section=SECTION,
            name="temporary files",
            state="missing",
            detail=f"{error.strerror}; PyTorch's optimizers need one",
            hint=TEMPORARY,
        )


def _works(name: str, detail: str) -> Finding:
    return Finding(section=SECTION, name=name, state="works", detail=detail)


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _shared() -> str:
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return "not there; Hocket needs none, workers of PyTorch's data loaders do"
    size_mib = found.f_frsize * found.f_blocks / (1 << 20)
    return f"{size_mib:,.0f} MiB; Hocket uses none, workers of PyTorch's data loaders do"
