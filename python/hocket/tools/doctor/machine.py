"""Machine: system, CPU and the kernel's large pages, memory of other processes, and anonymous files."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from hocket import __version__, _native
from hocket.start.leash import cores
from hocket.tools.doctor.finding import Finding, Section, group_limit

_finding = Section("machine")
ARCHITECTURES = ("x86_64", "aarch64")
AVX2 = frozenset({"avx2", "f16c"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
"""Instructions that `crates/kernels/src/dispatch.rs` looks for."""

COLLAPSE = 25
"""Value of MADV_COLLAPSE, since Linux 6.1."""
LARGE_PAGE_BYTES = 2 << 20

READ_PARENT = """
import ctypes, sys
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
pid, address = map(int, sys.argv[1:])
into = ctypes.create_string_buffer(8)
here, there = Part(ctypes.addressof(into), 8), Part(address, 8)
read = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print(into.raw.hex() if read == 8 else f"errno {ctypes.get_errno()}")
"""


def findings() -> Iterable[Finding]:
    """Yield findings on the basics of Hocket."""
    yield _installation()
    yield _finding("Linux", sys.platform == "linux", platform.release(), "Hocket runs on Linux", "broken")
    machine = platform.machine()
    yield _finding("architecture", machine in ARCHITECTURES, machine, "use x86-64 or 64-bit ARM", "broken")
    yield _finding("cores", True, f"{cores()} for this process, of {os.cpu_count()}")
    yield _finding("memory", True, memory_text())
    yield _instructions(machine)
    yield _anonymous_file()
    yield _other_memory()
    yield _large_pages()


def _installation() -> Finding:
    return _finding(
        "hocket", True, f"{__version__}, Python {platform.python_version()}, extension {_native.__file__}"
    )


def memory_text() -> str:
    """Return the available memory of the machine, and the limit of the control group if there is one."""
    known = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(known[key].split()[0]) / (1 << 20) for key in ("MemTotal", "MemAvailable"))
    text = f"{available:.1f} of {total:.1f} GiB available"
    limit = group_limit("memory", "memory.max", "memory.limit_in_bytes")
    if limit is not None and limit / (1 << 30) < total:
        text += f", limited to {limit / (1 << 30):.1f} GiB"
    return text


def _instructions(machine: str) -> Finding:
    if machine == "aarch64":
        return _finding("vector instructions", True, "NEON")
    flags: set[str] = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags.update(line.partition(":")[2].split())
            break
    level = "AVX-512" if flags >= AVX512 else "AVX2" if flags >= AVX2 else ""
    return _finding(
        "vector instructions",
        bool(level),
        level or "scalar kernels only, several times slower",
        "use a CPU with AVX2 and F16C",
    )


def _anonymous_file() -> Finding:
    try:
        descriptor = os.memfd_create("hocket-doctor")
    except OSError as error:
        return _finding(
            "shared memory",
            False,
            f"memfd_create: {error.strerror}",
            "allow memfd_create in the sandbox's rules",
            "broken",
        )
    os.close(descriptor)
    return _finding("shared memory", True, "memfd; the size of /dev/shm does not matter")


def _other_memory() -> Finding:
    """Check memory of other processes: a child reads a random word of this process, as unrelated ranks do."""
    word = ctypes.create_string_buffer(os.urandom(8), 8)
    argv = [sys.executable, "-I", "-c", READ_PARENT, str(os.getpid()), str(ctypes.addressof(word))]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    answer = ran.stdout.strip()
    good = answer == word.raw.hex()
    if good:
        return _finding("process_vm_readv", True, "ranks of a host read each other's memory")
    why = os.strerror(int(answer.split()[1])) if answer.startswith("errno") else ran.stderr.strip() or answer
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    detail = f"{why}; unregistered tensors of one host are copied twice"
    detail += f"; ptrace_scope is {scope.read_text().strip()}" if scope.exists() else ""
    return _finding(
        "process_vm_readv",
        False,
        detail,
        "sysctl kernel.yama.ptrace_scope=0; in a container: --cap-add SYS_PTRACE",
    )


def _large_pages() -> Finding:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    lost = "collectives of one host on memory that is not registered take up to twice as long"
    if not setting.exists() or "[never]" in setting.read_text():
        return _finding("large pages", False, f"switched off: {lost}", f"echo madvise > {setting}")
    memory = mmap.mmap(-1, 2 * LARGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.write(bytes(2 * LARGE_PAGE_BYTES))
        memory.madvise(COLLAPSE)
    except OSError as error:
        return _finding(
            "large pages", False, f"MADV_COLLAPSE: {error.strerror}: {lost}", "Linux 6.1 or newer has it"
        )
    finally:
        memory.close()
    return _finding("large pages", True, "on request")
