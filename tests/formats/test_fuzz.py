"""Parsers of others' files meet damage of every kind."""

import random

from tests.formats.fuzz import fuzz


def test_damaged_files_are_read_or_refused():
    """A damaged file would end in a traceback, or never end."""
    seed = random.randrange(2**32)  # noqa: S311
    outcome = fuzz(300, seed)
    assert all(read and refused for read, refused in outcome.values()), f"seed {seed}: {outcome}"
