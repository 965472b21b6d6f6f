"""Builds what is published, into `dist`: the sdist, and from it alone a manylinux wheel for each architecture.

    python scripts/wheel.py                       # x86-64 and aarch64
    python scripts/wheel.py --architecture x86_64

Zig links against the oldest glibc of manylinux2014 and compiles for other architectures. aarch64 needs `rustup target add`,
which is tried; a wheel for another machine than this one is built, not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"
POLICY = "manylinux2014"
ARCHITECTURES = ("x86_64", "aarch64")
BIN = Path(sys.executable).parent


def call(*words: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    """Run a command, shown first; SystemExit when it fails. Programs of this Python's environment come first."""
    print("$", *words, flush=True)
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [str(each) for each in words],
        cwd=cwd,
        env={**os.environ, **(environment or {}), "PATH": path},
        check=False,
    )
    if ran.returncode != 0:
        sys.exit(f"error: `{words[0]}` ended with {ran.returncode}")


def sdist(dist: Path) -> Path:
    """The sdist of what git tracks."""
    for old in dist.glob("hocket-*"):
        old.unlink()
    call("maturin", "sdist", "--out", dist)
    (made,) = dist.glob("hocket-*.tar.gz")
    return made


def wheel(architecture: str, source: Path, dist: Path) -> None:
    """One wheel of the unpacked sdist, with the switch's program in it."""
    target = f"{architecture}-unknown-linux-gnu"
    if shutil.which("rustup") is not None:
        call("rustup", "target", "add", target, cwd=source)
    # Compiled crates are kept from one call to the next, apart from those of the checkout.
    built = {"CARGO_TARGET_DIR": str(ROOT / "target/package")}
    call(
        sys.executable,
        "scripts/build_switch.py",
        "--target",
        f"{target}.{GLIBC}",
        cwd=source,
        environment=built,
    )
    zig = ("--zig", "--target", target, "--compatibility", POLICY)
    build = ("maturin", "build", *zig, "--strip", "--out", dist)
    call(*build, cwd=source, environment=built)
    (made,) = dist.glob(f"hocket-*{architecture}.whl")
    call(sys.executable, "scripts/native_stub.py", made, cwd=source)
    # Again, with the stub; nothing is compiled twice.
    call(*build, cwd=source, environment=built)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", action="append", choices=ARCHITECTURES)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args()
    dist = chosen.output.absolute()
    dist.mkdir(exist_ok=True)
    made = sdist(dist)
    with tempfile.TemporaryDirectory(prefix="hocket-sdist-") as folder:
        with tarfile.open(made) as archive:
            archive.extractall(folder, filter="data")
        # Files of an sdist have one fixed time, and cargo goes by time: it would take crates of an earlier sdist for these.
        for path in Path(folder).rglob("*"):
            path.touch()
        for architecture in chosen.architecture or ARCHITECTURES:
            wheel(architecture, Path(folder) / made.name.removesuffix(".tar.gz"), dist)


if __name__ == "__main__":
    main()
