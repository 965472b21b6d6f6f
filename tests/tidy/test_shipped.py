"""Machines that are simulated and shipped nowhere: a million simulated schedules would be no evidence for jobs there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIMULATORS = {"vopr", "hostile"}


def used(text, crate):
    """Modules of a crate that a file of Rust names."""
    found = set()
    for group, name in re.findall(rf"\b{crate}::(?:\{{([^}}]*)\}}|(\w+))", text):
        found |= {each.split("::")[0].strip() for each in group.split(",")} if group else {name}
    return found


def shipped(modules, others):
    """Modules of `protocol` that crates with a user name, or that such modules name, and so on."""
    found = set().union(*(used(text, "hocket_protocol") for text in others)) & set(modules)
    while more := set().union(*(used(modules[name], "crate") for name in found)) & set(modules) - found:
        found |= more
    return found


def test_each_machine_that_is_simulated_is_shipped():
    """Broken: a machine could be simulated a million times, called real, and used by no job."""
    folder = ROOT / "crates/protocol/src"
    names = re.findall(r"pub mod (\w+);", (folder / "lib.rs").read_text())
    modules = {}
    for name in names:
        files = [folder / f"{name}.rs", *(folder / name).rglob("*.rs")]
        modules[name] = "".join(file.read_text() for file in files if file.exists())
    others = [
        file.read_text()
        for crate in (ROOT / "crates").iterdir()
        if crate.name not in SIMULATORS | {"protocol"}
        for file in crate.glob("src/**/*.rs")
    ]
    assert set(names) - shipped(modules, others) == set()


def test_a_module_is_used_by_those_that_are_used():
    """Broken: a helper of a machine that ships would count as simulated only, or a simulator's own machine as shipped."""
    modules = {
        "one": "use crate::{two, three::Three};",
        "two": "",
        "three": "",
        "four": "use crate::five;",
        "five": "",
    }
    assert shipped(modules, ["use hocket_protocol::one::One;"]) == {"one", "two", "three"}
