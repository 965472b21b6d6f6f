"""Chakra execution traces: files as others write them, byte for byte; whatever is cut off, as far as it goes."""

import re
import tarfile

import pytest

from hocket.errors import ArtefactError
from hocket.tools.formats import chakra, chakra_native, msccl
from hocket.tools.formats.chakra import CollectiveType, EtFile
from tests.support.dlc_files import VECTORS

RING = VECTORS / "chakra-custom-ring-8"


@pytest.fixture
def pytorch(tmp_path):
    """The file of a real PyTorch step."""
    with tarfile.open(VECTORS / "chakra-pytorch-3664-nodes.tar.gz") as archive:
        archive.extract("tests/data/chakra.0.et", tmp_path, filter="data")
    return tmp_path / "tests/data/chakra.0.et"


def test_an_all_reduce_is_written_as_astra_sims_examples():
    """ASTRA-sim would not read our traces."""
    for rank in range(4):
        node = chakra.collective(rank, "all_reduce_4npus_1MB", CollectiveType.ALL_REDUCE, 1 << 20)
        written = chakra.encode(EtFile((node,), chakra.VERSION))
        assert written == (VECTORS / f"chakra-all-reduce-4/all_reduce.{rank}.et").read_bytes()


@pytest.mark.parametrize("rank", range(8))
def test_a_custom_collective_is_written_as_theirs(rank):
    """Programs that are written out as sends and receives would be other bytes than the converter of Chakra makes."""
    golden = (RING / f"custom_allreduce.{rank}.et").read_bytes()
    text = chakra.decode(golden).metadata["input_file"]
    steps = msccl.parse(text.encode(), "x").ranks[rank]
    nodes = []
    for number, step in enumerate(steps):
        after = [nodes[-1].id] if nodes else []
        name = f"NODE_tb0_step{number}"
        if step.send_to:
            peer, tag = step.send_to
            nodes.append(
                chakra.send(len(nodes), f"COMM_SEND_{name}", to=peer, tag=tag, size_bytes=131072, after=after)
            )
        else:
            peer, tag = step.receive_from
            nodes.append(
                chakra.receive(
                    len(nodes), f"COMM_RECV_{name}", source=peer, tag=tag, size_bytes=131072, after=after
                )
            )
        if step.kind == "rrc":
            nodes.append(chakra.compute(len(nodes), f"COMP_{name}", 7, [nodes[-1].id]))
    metadata = {"schema": "1.0.2-chakra.0.0.4", "input_file": text, "collective": "allreduce"}
    assert chakra.encode(EtFile(tuple(nodes), metadata=metadata)) == golden


def test_a_pytorch_step_is_read_in_full(pytorch):
    """A node, a dependency or an attribute of a real trace would be lost, or a size be made up."""
    file = chakra.read(pytorch)
    assert (len(file.nodes), file.truncated) == (3664, False)
    assert chakra.encode(file) == pytorch.read_bytes()
    recording, said = chakra_native.read(pytorch)
    assert len(recording.records(0)) == 3664
    assert re.search(r"14 of 21 collectives carry no type and size .*; the other 7 do", said[0])
    sizes = {int(size) for size in recording.records(0)["bytes"] if size}
    assert sizes == {212480, 424, 8196000, 31502336, 26255360, 26550272, 9724160}


def test_all_whole_messages_of_a_truncated_file(pytorch):
    """What was written before a crash would be lost."""
    data = pytorch.read_bytes()
    whole = chakra.decode(data)
    for end in (1, 100, 5000, 12345, len(data) // 2, len(data) - 1):
        file = chakra.decode(data[:end])
        assert file.truncated
        assert file.nodes == whole.nodes[: len(file.nodes)]
        # The message behind the last whole one is the one that is cut off.
        one_more = EtFile(whole.nodes[: len(file.nodes) + 1], whole.version, whole.metadata)
        assert len(chakra.encode(one_more)) > end


def test_what_is_no_execution_trace():
    """A file of something else would take all memory, or end in a traceback."""
    for data in (b"\xff" * 40, b"\x05hello", b"\x02\x08"):
        try:
            truncated = chakra.decode(data, "x").truncated
        except ArtefactError as error:
            truncated = str(error).startswith("x")
        assert truncated


def test_a_circle_of_nodes_is_told(tmp_path):
    """Reading would never end."""
    path = tmp_path / "x.0.et"
    chakra.write(path, EtFile((chakra.compute(1, "a", 5, [2]), chakra.compute(2, "b", 5, [1]))))
    with pytest.raises(ArtefactError, match="wait for one another"):
        chakra_native.read(path)
