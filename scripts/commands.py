"""Commands of the scripts that check what is published."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 3600.0


def ran(*words: str | Path, cwd: Path = ROOT, may_fail: bool = False) -> str:
    """Standard output of a command that does not find this checkout; SystemExit, with all that it said, when it fails."""
    told = [str(each) for each in words]
    if shutil.which(told[0]) is None:
        sys.exit(f"error: {told[0]} is not here\nhint: apt-get install {told[0]}")
    hidden = ("PYTHON", "VIRTUAL_ENV", "HOCKET_")
    left = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    left |= {"OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        told, cwd=cwd, env=left, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0 and not may_fail:
        sys.exit(f"error: {' '.join(told)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
