"""Commands that end by themselves."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 240
"""Less than tests have."""


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
