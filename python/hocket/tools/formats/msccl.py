"""MSCCL's XML: the steps of each GPU's thread blocks for one collective. Read as a program; the verifier judges it.

Steps of a block run one after the other; `depid` and `deps` name a block and a step that come before. Sizes are in
chunks; the file gives no bytes. Programs in place are supported: input and output are the same memory.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.parsers import expat

from hocket.errors import ArtefactError, ProgramError
from hocket.tools.formats.foreign_program import KINDS, RECEIVES, SENDS, Foreign, Place, Step

FILE_BYTES_MAX = 256 << 20

GPUS_MAX = 1 << 16

Element = tuple[str, dict[str, str], int]
"""Name, attributes and line."""


def read(path: Path) -> Foreign:
    """Return the program of a file. Raises ArtefactError: no such file; ProgramError: no MSCCL program, with the line at fault."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ArtefactError(f"{path} has more than {FILE_BYTES_MAX} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    return parse(data, str(path))


def parse(data: bytes, name: str) -> Foreign:
    """Return the program in the file's bytes; `name` is for messages. Raises ProgramError as `read`."""
    return _Reader(_elements(data, name), name).program()


def _elements(data: bytes, name: str) -> list[Element]:
    """Return all elements in order. A document type is refused: it could make a small file expand endlessly."""
    found: list[Element] = []
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise ProgramError(
            f"{name}:{parser.CurrentLineNumber}: a document type has no place in an MSCCL program"
        )

    parser.StartElementHandler = lambda tag, attributes: found.append(
        (tag, attributes, parser.CurrentLineNumber)
    )
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise ProgramError(f"{name} is no XML: {error}") from None
    return found


class _Reader:
    """Reader of the elements; every error names the line."""

    def __init__(self, elements: list[Element], name: str) -> None:
        self._elements, self._name = elements, name

    def program(self) -> Foreign:
        """Return the program of the whole file."""
        if not self._elements or self._elements[0][0] != "algo":
            raise ProgramError(f"{self._name} is no MSCCL program: it does not begin with `algo`")
        algo = self._elements[0]
        world = self._number(algo, "ngpus", 1, GPUS_MAX)
        collective = self._word(algo, "coll")
        if algo[1].get("inplace") != "1":
            raise self._wrong(algo, "is out of place: only programs with `inplace=1` are read")
        gpus: list[list[Element]] = []
        for element in self._elements[1:]:
            if element[0] == "gpu":
                if self._number(element, "id", 0, world - 1) != len(gpus):
                    raise self._wrong(element, f"is not GPU {len(gpus)}, which is next")
                gpus.append([element])
            elif element[0] not in ("tb", "step", "copy") or not gpus:
                raise self._wrong(element, "has no place here")
            else:
                gpus[-1].append(element)
        if len(gpus) != world:
            raise self._wrong(algo, f"speaks of {world} GPUs, the file has {len(gpus)}")
        heads = [gpu[0] for gpu in gpus]
        chunks = max(self._number(heads[0], each, 0, 1 << 30) for each in ("i_chunks", "o_chunks"))
        # The owner's part of a gather begins where its rank says.
        part = self._number(heads[0], "i_chunks", 0, 1 << 30) if collective == "allgather" else 0
        if collective == "allgather" and part * world != chunks:
            raise self._wrong(heads[0], f"gathers {world} parts of {part} chunks into {chunks}")
        ranks = tuple(
            self._gpu(gpu[1:], rank, (chunks, self._number(heads[rank], "s_chunks", 0, 1 << 30), part * rank))
            for rank, gpu in enumerate(gpus)
        )
        scratch = tuple(self._number(head, "s_chunks", 0, 1 << 30) for head in heads)
        name = re.sub(r"[^\w.-]+", "_", algo[1].get("name", "")) or collective
        return Foreign(name, collective, chunks, ranks, scratch, (self._name,) * world)

    def _gpu(self, elements: list[Element], rank: int, sizes: tuple[int, int, int]) -> tuple[Step, ...]:
        """Return the steps of a GPU, block by block. `sizes`: chunks of data and scratch, and the start of the input in the
        data."""
        blocks: list[tuple[Element, list[Element]]] = []
        for element in elements:
            if element[0] == "tb":
                blocks.append((element, []))
                if self._number(element, "id", 0, 1 << 30) != len(blocks) - 1:
                    raise self._wrong(element, f"is not thread block {len(blocks) - 1}, which is next")
            elif element[0] == "step":
                if not blocks:
                    raise self._wrong(element, "stands outside of a thread block")
                if self._number(element, "s", 0, 1 << 30) != len(blocks[-1][1]):
                    raise self._wrong(
                        element, f"is not step {len(blocks[-1][1])} of its thread block, which is next"
                    )
                blocks[-1][1].append(element)
        firsts = [0]
        for _, steps in blocks:
            firsts.append(firsts[-1] + len(steps))
        used: dict[tuple[str, int, int], int] = {}
        made: list[Step] = []
        for number, (block, steps) in enumerate(blocks):
            connections = {}
            for way in ("send", "recv"):
                peer = self._number(block, way, -1, GPUS_MAX)
                channel = self._number(block, "chan", 0, (1 << 15) - 1)
                if peer == rank:
                    raise self._wrong(block, f"has GPU {rank} {way} with itself")
                if peer >= 0 and used.setdefault((way, peer, channel), number) != number:
                    raise self._wrong(
                        block,
                        f"and thread block {used[way, peer, channel]} both {way} with GPU {peer}, channel {channel}",
                    )
                connections[way] = None if peer < 0 else (peer, channel)
            for step in steps:
                after = [len(made) - 1] if len(made) > firsts[number] else []
                after += self._depends(step, firsts)
                made.append(self._step(step, connections, tuple(after), sizes))
        return tuple(made)

    def _depends(self, step: Element, firsts: list[int]) -> list[int]:
        block = self._number(step, "depid", -1, 1 << 30)
        if block < 0:
            return []
        if block >= len(firsts) - 1:
            raise self._wrong(step, f"waits for thread block {block}, which is not there")
        number = self._number(step, "deps", 0, 1 << 30)
        if number >= firsts[block + 1] - firsts[block]:
            raise self._wrong(step, f"waits for step {number} of thread block {block}, which is not there")
        return [firsts[block] + number]

    def _step(
        self,
        step: Element,
        connections: dict[str, tuple[int, int] | None],
        after: tuple[int, ...],
        sizes: tuple[int, int, int],
    ) -> Step:
        kind = self._word(step, "type")
        if kind not in KINDS:
            raise self._wrong(step, f"is a `{kind}`: there are {', '.join(sorted(KINDS))}")
        nowhere = Place(scratch=False, offset=0, count=0)
        if kind == "nop":
            return Step(kind, nowhere, nowhere, after, line=step[2])
        for way, kinds in (("send", SENDS), ("recv", RECEIVES)):
            if kind in kinds and connections[way] is None:
                raise self._wrong(step, f"is a `{kind}` in a thread block that does not {way}")
        source = self._place(step, "src", sizes) if kind not in ("r", "rcs") else nowhere
        destination = self._place(step, "dst", sizes) if kind not in ("s", "rrs") else source
        return Step(
            kind,
            source,
            destination,
            after,
            connections["send"] if kind in SENDS else None,
            connections["recv"] if kind in RECEIVES else None,
            step[2],
        )

    def _place(self, step: Element, end: str, sizes: tuple[int, int, int]) -> Place:
        buffer = self._word(step, f"{end}buf")
        offset, count = self._number(step, f"{end}off", 0, 1 << 30), self._number(step, "cnt", 1, 1 << 30)
        if buffer not in ("i", "o", "s"):
            raise self._wrong(step, f"has buffer `{buffer}`: there are i, o and s")
        scratch = buffer == "s"
        offset += sizes[2] if buffer == "i" else 0
        if offset + count > sizes[scratch]:
            raise self._wrong(
                step, f"reaches chunk {offset + count} of `{buffer}`, which has {sizes[scratch]}"
            )
        return Place(scratch, offset, count)

    def _word(self, element: Element, name: str) -> str:
        if name not in element[1]:
            raise self._wrong(element, f"has no `{name}`")
        return element[1][name]

    def _number(self, element: Element, name: str, least: int, most: int) -> int:
        text = self._word(element, name)
        if not re.fullmatch(r"-?\d{1,10}", text) or not least <= int(text) <= most:
            raise self._wrong(element, f"has `{name}` {text}: a number from {least} to {most}")
        return int(text)

    def _wrong(self, element: Element, what: str) -> ProgramError:
        name, attributes, line = element
        number = attributes.get("id", attributes.get("s"))
        return ProgramError(
            f"{self._name}:{line}: `{name}`{f' {number}' if number is not None else ''} {what}"
        )
