"""Checkpoints: directories of files, which travel between nodes as one archive. Loads no Ray."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

from hocket.errors import UsageError


class Checkpoint:
    """Files of a directory of this machine, or in a worker the checkpoint that the trainer was given, as an archive.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     _ = Path(directory, "model.txt").write_text("weights")
    ...     archive = Checkpoint.from_directory(directory).packed()
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     Path(unpack(archive, Path(directory)), "model.txt").read_text()
    'weights'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take a directory. UsageError: there is no such directory."""
        self.path = Path(path).absolute()
        if not self.path.is_dir():
            raise UsageError(
                f"{self.path} is not a directory, and a checkpoint is one of files\n"
                "hint: write the files into a directory, and give that"
            )

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return a checkpoint of the files in a directory of this machine."""
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str]) -> Path:
        """Copy the files into a directory, made if need be."""
        return Path(shutil.copytree(self.path, path, dirs_exist_ok=True))

    def packed(self) -> bytes:
        """Return all files as one archive."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for each in sorted(self.path.iterdir()):
                archive.add(each, arcname=each.name)
        return packed.getvalue()

    def __repr__(self) -> str:
        """Return a description with the path."""
        return f"Checkpoint({str(self.path)!r})"


def unpack(packed: bytes, directory: Path) -> Path:
    """Write the files of an archive into a directory, made if need be, and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return directory
