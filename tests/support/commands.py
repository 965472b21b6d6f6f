"""Commands that end by themselves."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hocket.extras import EXTRAS

TIMEOUT_S = 240
"""Less than tests have."""

WITHOUT_EXTRAS = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {tuple(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""Python after which none of the extras is installed."""


def completed(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    input: str | None = None,  # noqa: A002  # as in `subprocess`
    env: Mapping[str, str] | None = None,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """A command and its output; `more` are variables beside those of `env`, or of this process."""
    own = {**(os.environ if env is None else env), **more}
    return subprocess.run(
        argv, cwd=cwd, input=input, env=own, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


def alone(
    argv: Sequence[str | Path], *, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without variables of Hocket, and with the paths of this process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")}
    return completed(argv, cwd=cwd, env=own, **({"PYTHONPATH": os.pathsep.join(sys.path)} | more))
