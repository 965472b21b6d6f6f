"""Every `--help`, as text in `help.txt`; `make bless` writes it anew, and the difference is reviewed."""

import os
from pathlib import Path

from tests.cli.commands import commands, help_of, leaves

GOLDEN = Path(__file__).parent / "help.txt"


def test_help_is_as_reviewed():
    """A verb or an option would change for users unseen."""
    text = "".join(f"$ {name} --help\n{help_of(name, each)}\n\n" for name, each in commands().items())
    if os.environ.get("HOCKET_BLESS") == "1":
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, "see `make bless`"


def test_every_command_has_an_example_and_every_option_a_sentence():
    """A user would have to read the source to use it."""
    for name, command in leaves().items():
        assert f"Example: {name}" in help_of(name, command) or "Example: HOCKET_" in help_of(name, command), (
            name
        )
        mute = [each.name for each in command.params if each.param_type_name == "option" and not each.help]
        assert mute == [], name


def test_every_table_has_json_beside_it():
    """A program could not read what a person can."""
    without = {
        name for name, each in leaves().items() if not any("--json" in option.opts for option in each.params)
    }
    assert without == {
        "hocket coordinator", "hocket join", "hocket leave", "hocket run", "hocket testbed down", "hocket testbed run",
        "hocket trace convert",
    }  # fmt: skip
