"""A custom collective in Chakra execution traces as a program.

Its ops are the nodes' sends, receives and reductions, in the order of their dependencies, with the offsets of the MSCCL
steps that the nodes are named after.

Nodes give the peer, the size and the dependencies; only the program that they were made from, which the metadata holds
as `input_file`, gives the chunk. A receive reduces if a computation node of the same step follows it. The nodes
determine the ops, so a file whose nodes contradict its program is judged by its nodes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hocket.errors import ProgramError
from hocket.tools.formats import chakra, msccl
from hocket.tools.formats.chakra import EtFile, Node, NodeType
from hocket.tools.formats.chakra_native import family
from hocket.tools.formats.foreign_program import RECEIVES, SENDS, Foreign, Step

NAME = re.compile(r"(?:COMM_SEND|COMM_RECV|COMP)_NODE_tb(\d{1,6})_step(\d{1,6})")

ELEMENT_BYTES = 4
"""Size of f32, the type to be summed: nodes give bytes, not types."""


GPU, BLOCK, STEP = (re.compile(rf"<{name}\s") for name in ("gpu", "tb", "step"))
"""Start tags of elements."""


def read(path: Path) -> tuple[Foreign, int]:
    """Return the program of all ranks' files, `NAME.RANK.et`, of which `path` is one; and the number of elements per chunk.

    Raises ArtefactError: a file cannot be read; ProgramError: it is no custom collective, or a node is invalid by
    itself.
    """
    files = family(path)
    traces = [chakra.read(each) for each in files]
    text = traces[0].metadata.get("input_file")
    if not isinstance(text, str):
        raise ProgramError(
            f"{files[0]} has no `input_file` in its metadata: its nodes do not say which part of memory they move\n"
            "hint: give the program that it was made from, as MSCCL XML"
        )
    planned = msccl.parse(text.encode(), f"{files[0]} (input_file)")
    if len(files) != len(planned.ranks):
        raise ProgramError(
            f"{path}: {len(files)} ranks' files are there, the program has {len(planned.ranks)}"
        )
    chunk_bytes: set[int] = set()
    ranks = []
    for rank, (file, trace) in enumerate(zip(files, traces, strict=True)):
        if trace.truncated:
            raise ProgramError(f"{file} ends within a message")
        places = _places(text, rank)
        ranks.append(_Rank(file, trace, planned.ranks[rank], places).steps(chunk_bytes))
    if len(chunk_bytes) != 1:
        raise ProgramError(
            f"{path}: chunks are of {', '.join(map(str, sorted(chunk_bytes))) or 'no'} bytes: all are of one size"
        )
    size = chunk_bytes.pop()
    if size % ELEMENT_BYTES:
        raise ProgramError(f"{path}: chunks of {size} bytes are not whole f32 elements")
    return replace(planned, ranks=tuple(ranks), files=tuple(map(str, files))), size // ELEMENT_BYTES


def _places(text: str, rank: int) -> dict[tuple[int, int], int]:
    """Return the position in the rank's steps by (thread block, step). The text has been parsed before, so it is well-formed."""
    gpus = GPU.split(text)[1:]
    if rank >= len(gpus):
        raise ProgramError(
            f"`input_file` in the metadata spells the steps of {len(gpus)} GPUs in a way that is known: not {rank + 1}"
        )
    counts = [len(STEP.findall(block)) for block in BLOCK.split(gpus[rank])[1:]]
    pairs = [(block, step) for block, count in enumerate(counts) for step in range(count)]
    return {pair: position for position, pair in enumerate(pairs)}


class _Rank:
    def __init__(
        self, file: Path, trace: EtFile, planned: tuple[Step, ...], places: dict[tuple[int, int], int]
    ) -> None:
        self._file, self._nodes, self._planned, self._places = file, trace.nodes, planned, places

    def steps(self, chunk_bytes: set[int]) -> tuple[Step, ...]:
        """Return the steps with nodes, in the order of the first of each; adds the sizes of chunks."""
        members: dict[int, list[Node]] = {}
        step_of: dict[int, int] = {}
        last = -1
        for node in self._nodes:
            if node.id in step_of:
                raise self._wrong(node, "is there twice")
            if node.id < last:
                raise self._wrong(node, f"stands behind node {last}")
            last = node.id
            position = self._position(node)
            if any(other.type == node.type for other in members.get(position, ())):
                raise self._wrong(node, f"does again what node {members[position][0].id} does: `{node.name}`")
            members.setdefault(position, []).append(node)
            step_of[node.id] = position
        order = {position: number for number, position in enumerate(members)}
        steps = []
        for position, nodes in members.items():
            after = set()
            for node in nodes:
                for dependency in (*node.data_deps, *node.ctrl_deps):
                    if dependency not in step_of:
                        raise self._wrong(node, f"waits for node {dependency}, which is not there")
                    if step_of[dependency] != position:
                        after.add(order[step_of[dependency]])
            steps.append(self._step(nodes, self._planned[position], tuple(sorted(after)), chunk_bytes))
        return tuple(steps)

    def _position(self, node: Node) -> int:
        named = NAME.fullmatch(node.name)
        position = self._places.get((int(named[1]), int(named[2]))) if named else None
        if position is None:
            raise self._wrong(
                node, f"is named `{node.name}`, which is no step of the program in `input_file`"
            )
        return position

    def _step(self, nodes: list[Node], planned: Step, after: tuple[int, ...], chunk_bytes: set[int]) -> Step:
        """Return the nodes' operation, at the places of the step."""
        by_type = {node.type: node for node in nodes}
        sent, received = by_type.get(NodeType.SEND), by_type.get(NodeType.RECEIVE)
        reduces = NodeType.COMPUTE in by_type
        if received is None and sent is None:
            kind = planned.kind if planned.kind in ("cpy", "re", "nop") else None
        elif received is None:
            kind = "s" if not reduces else None
        elif reduces:
            kind = (
                planned.kind
                if sent is not None and planned.kind in ("rrs", "rrcs")
                else "rrc"
                if sent is None
                else "rrcs"
            )
        else:
            kind = "r" if sent is None else "rcs"
        if (
            kind is None
            or (received is not None and planned.kind not in RECEIVES)
            or (sent is not None and planned.kind not in SENDS)
        ):
            raise self._wrong(
                nodes[0],
                f"`{nodes[0].name}` is not part of a `{planned.kind}`, which that step of the program is",
            )
        for node in (sent, received):
            if node is not None:
                size = self._number(node, "comm_size")
                chunks = max(planned.source.count, planned.destination.count)
                if size % chunks:
                    raise self._wrong(node, f"moves {size} bytes, which are not {chunks} chunks")
                chunk_bytes.add(size // chunks)
        return replace(
            planned,
            kind=kind,
            source=planned.source if planned.source.count else planned.destination,
            after=after,
            send_to=None
            if sent is None
            else (self._number(sent, "comm_dst"), self._number(sent, "comm_tag")),
            receive_from=None
            if received is None
            else (self._number(received, "comm_src"), self._number(received, "comm_tag")),
            line=nodes[0].id,
        )

    def _number(self, node: Node, name: str) -> int:
        value = node.attributes.get(name)
        if not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise self._wrong(node, f"has no `{name}`, or a senseless one")
        return value

    def _wrong(self, node: Node, what: str) -> ProgramError:
        return ProgramError(f"{self._file}: node {node.id} {what}")
