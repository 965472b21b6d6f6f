"""Cluster, profile, plan and tuning files that are missing, cut off, newer or of another kind: a sentence, never a traceback."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts import files, shipped
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.tuning import Tuning
from hocket.errors import ArtefactError
from hocket.planning import search
from hocket.tools.testbed import example_cluster

CLUSTER = example_cluster("two-racks")
PROFILE = search.neutral_profile()
GOOD = {
    Cluster: CLUSTER,
    Profile: PROFILE,
    Plan: search.plan(CLUSTER, PROFILE, 4),
    Tuning: msgspec.structs.replace(shipped.tuning(), ladders=shipped.tuning().ladders[:1]),
}
KINDS = pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.__name__)


@KINDS
def test_what_was_written_is_read(kind, tmp_path):
    """A plan would change on its way to the ranks."""
    files.write(tmp_path / "x", GOOD[kind])
    assert files.read(tmp_path / "x", kind) == GOOD[kind]


@KINDS
def test_missing_files_are_named(kind, tmp_path):
    """A typing mistake would end in a traceback."""
    with pytest.raises(ArtefactError, match=r"nowhere cannot be read"):
        files.read(tmp_path / "nowhere", kind)


@KINDS
def test_newer_versions_are_refused(kind, tmp_path):
    """Fields that this version does not know would be ignored silently."""
    newer = msgspec.structs.replace(GOOD[kind], version=99)
    (tmp_path / "x").write_bytes(files.encode(newer))
    with pytest.raises(ArtefactError, match=r"x has version 99.*\n.*newer one"):
        files.read(tmp_path / "x", kind)


@KINDS
def test_another_kind_is_refused_with_the_field(kind, tmp_path):
    """A profile given for a plan would fail much later."""
    tree = {"version": 1, "surprise": 3}
    text = "version = 1\nsurprise = 3\n" if kind is Cluster else msgspec.json.encode(tree).decode()
    (tmp_path / "x").write_text(text)
    with pytest.raises(ArtefactError, match=r"surprise|missing required field"):
        files.read(tmp_path / "x", kind)


@KINDS
def test_damage_ends_in_a_sentence(kind, tmp_path):
    """A file that was cut off, or changed on disk, would crash the job on some ranks."""
    whole = files.encode(GOOD[kind])

    @settings(max_examples=150)
    @given(st.integers(0, len(whole)), st.integers(0, 30), st.binary(max_size=4))
    def check(at, cut, put):
        (tmp_path / "x").write_bytes(whole[:at] + put + whole[at + cut :])
        said = None
        try:
            found = files.read(tmp_path / "x", kind)
        except ArtefactError as error:
            said = str(error)
        assert str(tmp_path / "x") in said if said else isinstance(found, kind)

    check()
