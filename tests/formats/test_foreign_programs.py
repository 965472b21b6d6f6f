"""Programs of other systems: what is right runs and gives the right numbers, what is not is refused with the reason."""

import random
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from hocket import reference
from hocket.cli.verify import command
from hocket.errors import ProgramError
from hocket.tools.formats import chakra, chakra_program, msccl
from hocket.tools.formats.foreign_program import program
from tests.support.dlc_files import VECTORS
from tests.support.engines import Job

GATHER = VECTORS / "msccl-all-gather-32.xml"
RING = VECTORS / "chakra-custom-ring-8"
LINES = GATHER.read_text().split("\n")
STEPS = [at for at, text in enumerate(LINES) if "<step" in text and "nop" not in text]


def test_the_synthesised_all_gather_gathers():
    """A program that TE-CCL made could not be run here."""
    made = program(msccl.read(GATHER), 2)
    made.verify()
    chance = np.random.default_rng(1)
    expected = chance.standard_normal(64 * 2).astype(np.float32)
    buffers = []
    for rank in range(32):
        own = np.full(64 * 2, np.nan, np.float32)
        own[rank * 4 : rank * 4 + 4] = expected[rank * 4 : rank * 4 + 4]
        buffers.append([own])
    reference.run(made, buffers)
    for (each,) in buffers:
        assert np.array_equal(each, expected)


def test_the_custom_ring_sums():
    """A collective written out for ASTRA-sim could not be run here."""
    foreign, elements = chakra_program.read(RING / "custom_allreduce.5.et")
    assert elements * 4 == 131_072
    made = program(foreign, 3)
    made.verify()
    inputs = np.arange(8 * 24, dtype=np.float32).reshape(8, 24)
    buffers = [[row.copy()] for row in inputs]
    reference.run(made, buffers)
    for (each,) in buffers:
        assert np.array_equal(each, inputs.sum(axis=0))


def test_the_custom_ring_runs_natively():
    """What is verified could be something else than what the engines do with it."""
    foreign, _ = chakra_program.read(RING / "custom_allreduce.0.et")
    made = program(foreign, 500)
    inputs = np.arange(8 * 4000, dtype=np.float32).reshape(8, 4000)
    buffers = [[row.copy()] for row in inputs]
    job = Job(list("aabbccdd"))
    try:
        job.run(made, buffers)
    finally:
        job.close()
    for (each,) in buffers:
        assert np.array_equal(each, inputs.sum(axis=0))


def reason(lines):
    """Why a program is refused; None when it may run."""
    try:
        findings = program(msccl.parse("\n".join(lines).encode(), "x.xml"), 1).findings()
    except ProgramError as error:
        return str(error)
    return str(findings[0]) if findings else None


def renumbered(lines):
    """Steps numbered anew in each thread block, as a tool that edits programs would."""
    made, number = [], 0
    for text in lines:
        number = 0 if "<tb " in text else number
        made.append(re.sub(r'<step s="\d+"', f'<step s="{number}"', text))
        number += "<step" in text
    return made


def steps_for_each_change(count, steps=STEPS):
    """Other steps in each run; an assertion shows the program that was made."""
    return random.sample(steps, count)


@pytest.mark.parametrize("numbered", [False, True])
def test_a_removed_or_doubled_step_is_refused(numbered):
    """A program that loses or doubles a chunk would be run."""
    for at in steps_for_each_change(5):
        for changed in (LINES[:at] + LINES[at + 1 :], [*LINES[:at], LINES[at], *LINES[at:]]):
            said = reason(renumbered(changed) if numbered else changed)
            assert said is not None
            assert re.search(r"x\.xml:\d+", said), said
            assert re.search(
                r"never (sends|receives)|takes .* sends|wait|races|which nothing has written|which is (not there|next)",
                said,
            ), said


def kind(at):
    return re.search(r'type="(\w+)"', LINES[at])[1]


def test_swapped_steps_are_refused():
    """Chunks would end where others belong, or ranks wait for one another for ever."""
    # Two sends or receives of one block: each then meets what was for the other.
    alike = [at for at in STEPS if at + 1 in STEPS and kind(at) == kind(at + 1)]
    for at in steps_for_each_change(6, alike):
        swapped = [*LINES[:at], LINES[at + 1], LINES[at], *LINES[at + 2 :]]
        assert "which is next" in (reason(swapped) or "")
        assert reason(renumbered(swapped)) is not None


def refused(tmp_path, change):
    """Why the ring is refused when `change` has changed the nodes of rank 2."""
    folder = tmp_path / "ring"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(RING, folder)
    path = folder / "custom_allreduce.2.et"
    file = chakra.read(path)
    nodes = list(file.nodes)
    change(nodes)
    chakra.write(path, chakra.EtFile(tuple(nodes), file.version, file.metadata))
    try:
        foreign, _ = chakra_program.read(path)
        findings = program(foreign, 1).findings()
    except ProgramError as error:
        return str(error)
    return str(findings[0]) if findings else None


def test_changed_nodes_of_a_ring_are_refused(tmp_path):
    """A ring whose nodes are not those of its program would be run, and sum something else."""
    assert refused(tmp_path, lambda _: None) is None
    for at in range(35):
        said = refused(tmp_path, lambda nodes, at=at: nodes.pop(at))
        assert said is not None, at
        said = refused(tmp_path, lambda nodes, at=at: nodes.insert(at, nodes[at]))
        assert f"node {at} is there twice" in said
    assert "lacks the contribution" in refused(tmp_path, without_reduction)
    for at in range(0, 30, 3):

        def swap(nodes, at=at):
            nodes[at], nodes[at + 1] = nodes[at + 1], nodes[at]

        assert "stands behind" in refused(tmp_path, swap)


def without_reduction(nodes):
    """The first reduction is removed, and who waited for it waits for what it waited for."""
    gone = nodes.pop(2)
    nodes[2].data_deps = gone.data_deps


def test_swapped_sends_of_a_ring_are_refused(tmp_path):
    """Two messages of one connection would carry each other's chunk."""

    def swap(nodes):
        sends = [node for node in nodes if node.type == chakra.NodeType.SEND]
        sends[1].name, sends[2].name = sends[2].name, sends[1].name

    assert refused(tmp_path, swap) is not None


def test_sends_that_need_more_slots_deadlock():
    """A program would stall on hardware, whose connections hold only so many messages."""

    def exchange(messages):
        blocks = []
        for rank in range(2):
            sends = [
                f'<step s="{n}" type="s" srcbuf="i" srcoff="{rank * messages + n}" dstbuf="i" dstoff="0" cnt="1" '
                'depid="-1" deps="-1"/>'
                for n in range(messages)
            ]
            receives = [
                f'<step s="{messages + n}" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="{(1 - rank) * messages + n}" cnt="1" '
                'depid="-1" deps="-1"/>'
                for n in range(messages)
            ]
            head = f'<gpu id="{rank}" i_chunks="{messages}" o_chunks="{2 * messages}" s_chunks="0">'
            steps = "".join(sends + receives).replace('buf="i"', 'buf="o"')
            blocks.append(f'{head}<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">{steps}</tb></gpu>')
        text = f'<algo name="x" ngpus="2" coll="allgather" inplace="1">{"".join(blocks)}</algo>'
        return program(msccl.parse(text.encode(), "x.xml"), 1).findings()

    assert exchange(8) == []
    assert "wait" in exchange(9)[0].what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<algo", "is no XML"),
        ("<x/>", "does not begin with `algo`"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><algo/>', "document type"),
        ('<algo ngpus="2" coll="allreduce" inplace="0"/>', "out of place"),
        ('<algo ngpus="2" coll="allreduce" inplace="1"/>', "speaks of 2 GPUs, the file has 0"),
        ('<algo ngpus="x" coll="allreduce" inplace="1"/>', "has `ngpus` x"),
        ('<algo ngpus="1" inplace="1"/>', "has no `coll`"),
    ],
)
def test_files_that_are_no_program(text, said):
    """A damaged file would be told by a traceback, or take all memory."""
    with pytest.raises(ProgramError, match=re.escape(said)):
        msccl.parse(text.encode(), "x.xml")


def test_the_verb_shows_them():
    """Nobody could look at another system's program."""
    runner = CliRunner()
    shown = runner.invoke(
        command,
        [str(GATHER), "--after", "read", "--rank", "0", "--chunk-elements", "4"],
        catch_exceptions=False,
    )
    assert "send %0[0:4] as f32 to 1 tag 0" in shown.output
    ring = [str(RING / "custom_allreduce.0.et")]
    shown = runner.invoke(command, [*ring, "--after", "read"], catch_exceptions=False)
    assert "ensures all_reduce sum scale 1.0 %0 over 0 1 2 3 4 5 6 7" in shown.output
    assert "proven for 8 ranks" in runner.invoke(command, ring, catch_exceptions=False).output


def test_elements_may_be_spelt_over_several_lines(tmp_path):
    """A custom collective whose program another tool had laid out would end in a traceback."""
    for path in (VECTORS / "chakra-custom-ring-8").iterdir():
        trace = chakra.read(path)
        text = str(trace.metadata["input_file"])
        for name in ("gpu", "tb", "step"):
            text = text.replace(f"<{name} ", f"<{name}\n")
        laid_out = chakra.EtFile(trace.nodes, trace.version, {**trace.metadata, "input_file": text})
        chakra.write(tmp_path / path.name, laid_out)
    found, elements = chakra_program.read(tmp_path / "custom_allreduce.0.et")
    assert (len(found.ranks), elements) == (
        8,
        chakra_program.read(VECTORS / "chakra-custom-ring-8/custom_allreduce.0.et")[1],
    )
