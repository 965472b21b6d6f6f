"""Checks the wheel for aarch64 on a machine of another kind, in an emulator: do two ranks train as one process does?

    python scripts/check_aarch64.py dist/hocket-*aarch64.whl --qemu /usr/bin/qemu-aarch64-static

debootstrap makes Debian's smallest system of that machine, for which pip chooses PyTorch and what the wheel requires. The emulator
must be linked statically and of version 8 or later: earlier ones need 8 GB of their own for the addresses that a rank reserves. As
root, a quarter of an hour; what was made is removed, as is the kernel's entry for the emulator.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from check_wheel import BETWEEN, trains
from commands import ran

ENTRIES = Path("/proc/sys/fs/binfmt_misc")
ENTRY = "hocket-aarch64"
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
RELEASE, PYTHON = "bookworm", "3.11"
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
SITE = "site"
PATIENCE_S = 600
"""The emulator takes a minute to import PyTorch."""


class Emulated:
    """A system of another machine, in which `folder` is at the same place; used as an `Environment` of `check_wheel`."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`root`: of the system; `folder`: where files go, and packages in its `site`."""
        self.root, self.folder = root, folder

    def call(self, program: str, *words: str) -> str:
        """Return what a program prints; SystemExit when it fails."""
        site = self.folder / SITE
        started = ["python3"] if program == "python" else ["python3", str(site / "bin" / program)]
        patience = [f"HOCKET_{name}TIMEOUT_S={PATIENCE_S}" for name in ("", "START_")]
        return ran("chroot", self.root, "env", f"PYTHONPATH={site}", *patience, *started, *words)

    def install(self, package: Path) -> None:
        """By this machine's pip. PyTorch's own requirements here, of CUDA, are none there."""
        platforms = [word for each in PLATFORMS for word in ("--platform", f"{each}_aarch64")]
        into = ["--python-version", PYTHON, "--only-binary=:all:", "--target", str(self.folder / SITE)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *platforms, *into]
        ran(*pip, package, "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "filelock")
        ran(*pip, "--no-deps", f"torch=={BETWEEN}")


@contextmanager
def emulator(qemu: Path) -> Iterator[None]:
    """The kernel starts programs of aarch64 by it (binfmt_misc), also in another root."""
    if not (ENTRIES / "register").exists():
        ran("mount", "-t", "binfmt_misc", "none", ENTRIES)
    (ENTRIES / "register").write_text(f":{ENTRY}:M::{MAGIC}:{MASK}:{qemu}:F")
    try:
        yield
    finally:
        (ENTRIES / ENTRY).write_text("-1")


@contextmanager
def mounted(source: str | Path, target: Path) -> Iterator[None]:
    """A folder, or what the kernel shows, at another place too."""
    target.mkdir(parents=True, exist_ok=True)
    ran("mount", "--rbind", source, target)
    ran("mount", "--make-rslave", target)
    try:
        yield
    finally:
        ran("umount", "--lazy", target)


def main() -> None:
    """One wheel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument("--qemu", type=Path, default=Path("/usr/bin/qemu-aarch64-static"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hocket-check-") as folder, ExitStack() as held:
        root, work = Path(folder) / "root", Path(folder) / "work"
        work.mkdir()
        held.enter_context(emulator(chosen.qemu.absolute()))
        ran("debootstrap", "--arch=arm64", "--variant=minbase", "--include=python3,iproute2", RELEASE, root)
        for each in ("/proc", "/sys", "/dev"):
            held.enter_context(mounted(each, root / each[1:]))
        held.enter_context(mounted(work, root / work.relative_to("/")))
        emulated = Emulated(root, work)
        emulated.install(chosen.package.absolute())
        print(f"{emulated.call('hocket', '--version').strip()} from {chosen.package.name}", flush=True)
        trains(emulated)


if __name__ == "__main__":
    main()
