"""Builds the testbed's switch and puts it beside the module that starts it, where wheels take it from.

python scripts/build_switch.py                                       # for this machine
python scripts/build_switch.py --target aarch64-unknown-linux-gnu.2.17   # by cargo-zigbuild, for that glibc and later
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "python/hocket/tools/testbed/hocket-switch"


def build(target: str | None = None) -> Path:
    """The program where it belongs. SystemExit where there is no cargo, or it fails."""
    if shutil.which("cargo") is None:
        sys.exit("error: no cargo here\nhint: install a Rust toolchain")
    verb = ["build"] if target is None else ["zigbuild", "--target", target]
    command = [
        "cargo",
        *verb,
        "--release",
        "-p",
        "hocket-switch",
        "--message-format",
        "json-render-diagnostics",
    ]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(ran.returncode)
    messages = [json.loads(line) for line in ran.stdout.splitlines()]
    (program,) = (each["executable"] for each in messages if each.get("executable"))
    shutil.copy(program, PLACE)
    PLACE.chmod(0o755)
    return PLACE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", help="of rustc, with a version of glibc")
    build(parser.parse_args().target)
