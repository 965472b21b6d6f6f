"""Command of a rank, from the words after `hocket run`."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from hocket.errors import UsageError


def argv_of(
    script: str, arguments: Sequence[str], *, interpreter: str, as_module: bool, elsewhere: bool
) -> list[str]:
    """Return the command of each rank.

    Python runs modules, `*.py`, folders and archives with a `__main__`, and files that are not executable; executables
    run directly,
    by path or by name.

    Args:
        script: a file, a command's name, or a module's.
        arguments: the script's.
        interpreter: the Python of the ranks.
        as_module: `script` is a module's name.
        elsewhere: True if ranks run on other hosts, whose commands are unknown here.

    Raises:
        UsageError: there is no such file or command, or it cannot be run.

    >>> argv_of("train", ["--steps", "3"], interpreter="python", as_module=True, elsewhere=False)
    ['python', '-m', 'train', '--steps', '3']
    """
    if as_module:
        return [interpreter, "-m", script, *arguments]
    path = Path(script)
    if path.is_file() and os.access(path, os.X_OK) and path.suffix != ".py":
        return [script if os.sep in script else f"./{script}", *arguments]
    if _is_for_python(path):
        return [interpreter, script, *arguments]
    if path.is_file():
        raise UsageError(
            f"{script} is neither Python nor executable\nhint: `chmod +x {script}`, if it is a program"
        )
    if os.sep not in script and path.suffix != ".py" and (elsewhere or shutil.which(script)):
        return [script, *arguments]
    raise UsageError(
        f"script {script} does not exist\nhint: give the path of a script or a program, or a command in the PATH"
    )


def _is_for_python(path: Path) -> bool:
    if path.is_dir():
        return (path / "__main__.py").is_file()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        is_text = b"\0" not in file.read(1024)
    return is_text or path.suffix == ".pyc" or zipfile.is_zipfile(path)
