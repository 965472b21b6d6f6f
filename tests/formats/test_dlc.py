"""DLC's text: the paper's fragment and any other file come back byte for byte; what is damaged is told and left out."""

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.cli.trace import command
from hocket.errors import ArtefactError
from hocket.tools.formats import dlc
from tests.support.dlc_files import FRAGMENT, header, line, records

GOOD = line(3, 2, 0, 19, 21, "OP:= Push_Recv_Worker", "6-5-s0", 1, 4216, 1516622729, 817035, "6-4-s0")
BAD = line(4, 2, 0, 19, 21, "OP:= Push_Recv_Worker", "6-5-s1", 1, 4216, 1516622729, 817035, "6-4-s0")


def run(*arguments):
    result = CliRunner().invoke(
        command, [str(each) for each in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def back(path, target, **options):
    reader = dlc.Reader(path, **options)
    dlc.write(target, reader.header, reader.batches())
    return target.read_bytes(), reader.wholeness


def test_the_papers_fragment_comes_back(tmp_path):
    """Traces of SketchDLC's could not be read as they are, with their two spellings, shared ids and order."""
    text, wholeness = back(FRAGMENT, tmp_path / "back.txt", strict=True)
    assert text == FRAGMENT.read_bytes()
    assert (wholeness.records, wholeness.malformed, wholeness.truncated) == (68, 0, False)


def test_the_papers_fragment_comes_back_from_parquet(tmp_path):
    """Who keeps traces in Parquet would lose what a record says."""
    parquet, text = tmp_path / "t.parquet", tmp_path / "back.txt"
    assert "68 records" in run("convert", FRAGMENT, parquet)
    run("convert", parquet, "--format", "dlc", text)
    assert text.read_bytes() == FRAGMENT.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=records(), block=st.integers(1, 300))
def test_any_file_comes_back(tmp_path, monkeypatch, text, block):
    """A trace would change by being converted, or depend on where a block of it ends."""
    monkeypatch.setattr(dlc, "BLOCK_BYTES", block)
    monkeypatch.setattr(dlc, "LINE_BYTES_MAX", 10_000)
    path = tmp_path / "t.txt"
    path.write_text(header(3, 2) + text)
    assert back(path, tmp_path / "back.txt", strict=True)[0] == path.read_bytes()


def test_malformed_records_are_told_and_left_out(tmp_path):
    """One damaged line would cost the whole trace, or be taken for what it is not."""
    path = tmp_path / "t.txt"
    path.write_text(header() + GOOD + BAD + "what?\n" + line(5, *GOOD.rstrip().split("\t")[1:]))
    text, wholeness = back(path, tmp_path / "back.txt")
    assert text.decode().splitlines()[-2:] == [
        GOOD.rstrip(),
        line(5, *GOOD.rstrip().split("\t")[1:]).rstrip(),
    ]
    assert (wholeness.records, wholeness.malformed) == (2, 2)
    first, second = wholeness.problems
    assert first.startswith(f"{path}:8:35: op_id: names the peer that `src` and `dst` name")
    assert second.startswith(f"{path}:9:1: id:")
    with pytest.raises(ArtefactError, match=r"t.txt:8:35: op_id"):
        back(path, tmp_path / "no.txt", strict=True)
    output = run("convert", path, tmp_path / "t.parquet")
    assert "2 malformed records are left out" in output
    assert "t.txt:8:35" in output


def test_many_malformed_records_are_counted(tmp_path):
    """A file that is something else would flood the screen, or memory."""
    path = tmp_path / "t.txt"
    path.write_text(header() + BAD * 1000)
    _, wholeness = back(path, tmp_path / "back.txt")
    assert (wholeness.malformed, len(wholeness.problems)) == (1000, dlc.PROBLEMS_MAX)
    assert wholeness.sentences(path)[-1] == f"  and {1000 - dlc.PROBLEMS_MAX} more"


def test_every_whole_record_of_a_truncated_file(tmp_path):
    """A crash of the traced job would cost records that were written."""
    whole = FRAGMENT.read_bytes()
    start = whole.index(b"\n0\t") + 1
    path = tmp_path / "t.txt"
    for end in (*range(start, start + 300), *range(start, len(whole), 97), len(whole)):
        path.write_bytes(whole[:end])
        reader = dlc.Reader(path)
        count = sum(map(len, reader.batches()))
        assert count == whole[start:end].count(b"\n")
        assert reader.wholeness.truncated == (not whole[:end].endswith(b"\n"))
    with pytest.raises(ArtefactError, match="ends within a line"):
        path.write_bytes(whole[:-1])
        back(path, tmp_path / "no.txt", strict=True)


def test_a_header_that_ends_or_is_none(tmp_path):
    """A file of something else would be read as an empty trace."""
    path = tmp_path / "t.txt"
    for text in (b"", b"==\nnum_", header().encode()[:60]):
        path.write_bytes(text)
        reader = dlc.Reader(path)
        assert list(reader.batches()) == []
        assert reader.wholeness.truncated
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ArtefactError, match="is no DLC trace"):
        dlc.Reader(path)


def test_a_line_without_end_takes_no_memory(tmp_path, monkeypatch):
    """A damaged file could take all memory, or cost the records behind the damage."""
    monkeypatch.setattr(dlc, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(dlc, "LINE_BYTES_MAX", 1000)
    path = tmp_path / "t.txt"
    path.write_text(header() + GOOD + "x" * 50_000 + "\n" + GOOD)
    text, wholeness = back(path, tmp_path / "back.txt")
    assert text.decode() == header() + GOOD + GOOD
    assert wholeness.problems == [f"{path}:8:1: a line is at most 1000 bytes"]


def test_iterations_of_each_kind_of_node(tmp_path):
    """Phases would be shifted by an iteration: worker 0 initialises the servers, others do not, servers count from -2."""
    rows = [
        (0, 0, 2, 9, 1, "Push_Send_Worker", "0-4-s0"), (1, 1, 2, 9, 1, "Push_Send_Worker", "0-2-s0"),
        (2, 1, 2, 9, 1, "Push_Recv_Server", "0-2-w1"), (3, 0, 2, 9, 1, "Push_Recv_Server", "0--2-w0"),
        (4, 2, 0, 9, 1, "Pull_Recv_Worker", "0-3-s0"), (5, 2, 1, 9, 1, "Pull_Recv_Worker", "0-9-s0"),
    ]  # fmt: skip
    path = tmp_path / "t.txt"
    path.write_text(header() + "".join(line(*row, 0, 0, 1, 1, -1) for row in rows))
    (batch,) = dlc.Reader(path, strict=True).batches()
    assert dlc.iterations(batch).tolist() == [0, 0, 0, -1, -1, 1]
