"""Builds the image of examples/kubernetes/Dockerfile by podman, and trains in it as its user: in one container, and in two
that meet as the pods of job.yaml do. What it made is removed.

    python scripts/check_image.py
    python scripts/check_image.py --base-from ~/.pyenv/versions/3.12.1    # where no registry is reached; needs root, debootstrap

`make wheel` comes first. pip's index and certificates on this machine hold during the build, and are no part of the image.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from commands import ROOT, ran

DOCKERFILE = "examples/kubernetes/Dockerfile"
NAME = "hocket-check-image"
BASE = f"localhost/{NAME}-base"
RANKS = 2
PODS = [f"{NAME}-{rank}" for rank in range(RANKS)]
RIGHTS = ("--cap-drop", "all", "--security-opt", "no-new-privileges")
PIP = ("cert", "extra-index-url", "index-url", "proxy", "timeout", "trusted-host")
LIBRARIES = "ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,libuuid1,zlib1g"
"""Debian packages whose libraries Python's modules load, as in the official image."""


def make_base(prefix: Path, folder: Path) -> None:
    """An image of this Debian's smallest system with the Python in `prefix` in /usr/local, where the official image has it."""
    root, local = folder / "root", folder / "root/usr/local"
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    ran("debootstrap", "--variant=minbase", f"--include={LIBRARIES}", codename, root)
    left = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")
    for part in ("bin", "lib"):
        shutil.copytree(prefix / part, local / part, symlinks=True, dirs_exist_ok=True, ignore=left)
    ran("chroot", root, "ldconfig")
    ran("chroot", root, "python3.12", "-m", "ensurepip", "--default-pip")
    ran("tar", "-C", root, "-cf", folder / "base.tar", ".")
    ran("podman", "import", folder / "base.tar", BASE)


def pip_settings(folder: Path) -> list[str]:
    """Options of `podman build` that mount pip's settings of this machine."""
    listed = (each.partition("=") for each in ran(sys.executable, "-m", "pip", "config", "list").splitlines())
    named = [(name.rpartition(".")[2], ast.literal_eval(value)) for name, _, value in listed]
    kept = {name: value for name, value in reversed(named) if name in PIP}  # the environment is listed first
    file = folder / "pip.conf"
    file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in kept.items())]))
    mounts = [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in [kept.get("cert")] if path)]
    return [word for mount in mounts for word in ("--volume", mount)]


def alone() -> str:
    """Words of rank 0 where all ranks are in one container."""
    run = ("podman", "run", "--rm", *RIGHTS, NAME)
    user = ran(*run, "id", "-u").strip()
    if user == "0":
        sys.exit("error: the image runs as root")
    ran(*run, "hocket", "verify", "two_level")
    found = json.loads(ran(*run, "hocket", "doctor", "--json"))
    print(f"user {user}: hocket {found['version']}, {found['broken']} broken", flush=True)
    return ran(*run, "hocket", "run", "-n", str(RANKS), "--quiet-others", "train.py")


def in_pods() -> str:
    """Words of rank 0 where each rank has a container and a network namespace; all are told to be on one node."""
    told = [
        "MASTER_ADDR=train-0.train",
        "MASTER_PORT=29500",
        "HOCKET_START_TIMEOUT_S=900",
        "HOCKET_HOST=node",
    ]
    told += [f"HOCKET_SECRET={secrets.token_hex(32)}", f"WORLD_SIZE={RANKS}"]
    ran("podman", "network", "create", NAME)
    for rank, name in enumerate(PODS):
        network = ("--network", NAME, "--network-alias", f"train-{rank}.train")
        settings = [f"--env={each}" for each in (*told, f"RANK={rank}")]
        ran("podman", "run", "--detach", "--name", name, *network, *RIGHTS, *settings, NAME)
    codes = ran("podman", "wait", *PODS).split()
    if set(codes) != {"0"}:
        for name in PODS:
            subprocess.run(["podman", "logs", name], check=False)  # to where this process writes
        sys.exit(f"error: ranks in containers of their own ended with {', '.join(codes)}")
    return ran("podman", "logs", PODS[0])


def remove() -> None:
    """Remove what this or an earlier run has made."""
    ran("podman", "rm", "--force", "--ignore", "--time=1", *PODS, may_fail=True)
    ran("podman", "network", "rm", NAME, may_fail=True)
    for image in (NAME, BASE):
        ran("podman", "image", "rm", "--force", image, may_fail=True)


def main() -> None:
    """Build, train, remove."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--base-from", type=Path, metavar="PREFIX", help="Prefix of a Python 3.12, as pyenv's."
    )
    prefix = parser.parse_args().base_from
    if not list((ROOT / "dist").glob("hocket-*-manylinux*_x86_64.whl")):
        sys.exit("error: dist has no wheel for x86-64\nhint: make wheel")
    remove()
    with tempfile.TemporaryDirectory(prefix="hocket-image-") as name:
        began_s, base, settings = time.monotonic(), [], pip_settings(Path(name))
        try:
            if prefix:
                make_base(prefix.expanduser(), Path(name))
                base = ["--from", BASE]
            ran("podman", "build", "--network=host", *base, *settings, "-t", NAME, "-f", DOCKERFILE, ".")
            print(f"{DOCKERFILE}: built in {time.monotonic() - began_s:.0f} s", flush=True)
            one, two = alone(), in_pods()
        finally:
            remove()
    if not one.startswith(f"{RANKS} ranks") or one != two:
        sys.exit(f"error: in one container ranks end with {one!r}, in {RANKS} with {two!r}")
    print(f"in one container, and in {RANKS}: {two}", end="")


if __name__ == "__main__":
    main()
