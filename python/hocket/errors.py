"""Exceptions that Hocket raises: one short tree. Every message says what, where and what to do next.

Messages are for people. Facts that a program needs about an error, such as which rank was lost, are in its attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

PeerFailure = Literal[
    "gave_up", "lost", "left", "silent", "violation", "damaged", "failed", "refused", "timeout"
]


class Error(Exception):
    """Any error of Hocket; catch this to catch all of them."""

    @property
    def summary(self) -> str:
        """First line of the message: what happened. Hints follow it."""
        return str(self).partition("\n")[0]

    def reworded(self, message: str) -> Self:
        """Return the same error, attributes included, with another message.

        >>> PeerError("rank 1 left", rank=1).reworded("worker 1 left").rank
        1
        """
        other = type(self)(message)
        other.__dict__.update(self.__dict__)
        return other


class ArtefactError(Error):
    """A cluster, profile, plan or trace file cannot be read: missing, truncated, invalid or of a newer version."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Finding of the verifier on an op, or on a program as a whole. `str()` is the text for people.

    Attributes:
        rank: The rank whose op it is, or None for the program as a whole.
        op: The number of that op on its rank, or None.
        after_pass: The pass that left it so, or None for the finished program.
        what: What is wrong.
        file: The user's source file that made the op, or None if it is not known.
        line: The line in that file, from 1, or None.
        text: The finding with all details, and the ops in conflict with the op.
    """

    rank: int | None
    op: int | None
    after_pass: str | None
    what: str
    file: str | None
    line: int | None
    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class PolicyError(Error):
    """A policy cannot be traced, raised in a handler, or makes programs that are refused; the message has its file and line.

    Attributes:
        file: The user's source file with the refused line, or None if a handler or a whole program is refused.
        line: That line, from 1, or None.
        findings: The verifier's findings on a program of the policy; empty if something else is wrong.
    """

    def __init__(
        self,
        message: str = "",
        *,
        file: str | None = None,
        line: int | None = None,
        findings: Sequence[Finding] = (),
    ) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.file = file
        self.line = line
        self.findings = tuple(findings)


class BuilderError(Error):
    """A builder cannot be loaded, fails, or makes a plan that is refused; the message has its file and line.

    Attributes:
        file: The user's source file with the line at fault, or None if it is not known.
        line: That line, from 1, or None.
    """

    def __init__(self, message: str = "", *, file: str | None = None, line: int | None = None) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.file = file
        self.line = line


class ProgramError(Error):
    """A program is refused: text that does not parse, or ops that lose, double, race or deadlock.

    Attributes:
        findings: The verifier's findings; empty if something else is wrong.
    """

    def __init__(self, message: str = "", *, findings: Sequence[Finding] = ()) -> None:
        """Take a message for people, and the attribute."""
        super().__init__(message)
        self.findings = tuple(findings)


class RendezvousError(Error):
    """Ranks did not meet, or disagree about the job: address, world size, secret, model.

    Attributes:
        rank: The rank at fault, or None if there is no single one. If ranks are missing, the first of them.
        host: The name of that rank's host, or None if it is not known.
        missing: Ranks that did not come in time, ascending.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        host: str | None = None,
        missing: Sequence[int] = (),
    ) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.missing = tuple(missing)


class StoreGoneError(RendezvousError):
    """The store at which ranks met is gone: the launcher, or rank 0 that served it, has ended or cannot be reached."""


class PeerError(Error):
    """A rank of the running job died, stalled or broke the protocol.

    Attributes:
        rank: The rank at fault, or None where no single rank is. After a timeout, the first rank in `missing`.
        host: The name of that rank's host, or None if it is not known.
        why: What the rank did, or None if that is not known:

            - `"gave_up"`: it stopped by itself and sent the others the reason, for example because its script raised an exception.
            - `"lost"`: its connection ended without a goodbye. Its process died, or the network failed.
            - `"left"`: it left the job in order while other ranks still needed it.
            - `"silent"`: it sent nothing for HOCKET_HEARTBEAT_TIMEOUT_S.
            - `"violation"`: it broke the protocol.
            - `"damaged"`: bytes that it sent were changed on their way.
            - `"failed"`: one of its own operations failed.
            - `"refused"`: it refused a connection, because both ranks are configured differently.
            - `"timeout"`: it did not take part in an operation in time; it may only be slow.
        missing: After a timeout, the ranks that did not come, ascending; otherwise empty.
        exit_code: The exit code of that rank's process, if it left in order and told it; otherwise None.
        program: The number of the loaded program in which this process noticed, or None.
        launch: The count of that program's launches before this one, or None.
        op: The instruction of this process in that program, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        host: str | None = None,
        why: PeerFailure | None = None,
        missing: Sequence[int] = (),
        exit_code: int | None = None,
        program: int | None = None,
        launch: int | None = None,
        op: int | None = None,
    ) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.why = why
        self.missing = tuple(missing)
        self.exit_code = exit_code
        self.program = program
        self.launch = launch
        self.op = op


class ReplicaError(Error):
    """Ranks no longer hold the same model, or step it with other options of the optimizer.

    Attributes:
        ranks: Ranks that differ from the majority, or from rank 0 if there is none, ascending; empty if that is not known.
        parameters: The names of the parameters in which they differ, as far as one look has seen.
        step: Number of steps that were made until that look, or None as training begins.
    """

    def __init__(
        self,
        message: str = "",
        *,
        ranks: Sequence[int] = (),
        parameters: Sequence[str] = (),
        step: int | None = None,
    ) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.ranks = tuple(ranks)
        self.parameters = tuple(parameters)
        self.step = step


class EpochError(Error):
    """The epoch of members has ended, and the job has not: peers were lost, or the members change. Only elastic jobs raise this.

    Attributes:
        lost: Ranks that were lost in the epoch, in that order; empty if the members change for another reason.
    """

    def __init__(self, message: str = "", *, lost: Sequence[int] = ()) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.lost = tuple(lost)


class SimulationError(Error):
    """A simulated job did not end: the message has the stuck ranks, the chain of waits and the first op that never ended.

    Attributes:
        ranks: The ranks that are stuck, ascending; empty if the simulator itself failed.
        at_s: The virtual time of the last event, in seconds, or None.
    """

    def __init__(self, message: str = "", *, ranks: Sequence[int] = (), at_s: float | None = None) -> None:
        """Take a message for people, and the attributes."""
        super().__init__(message)
        self.ranks = tuple(ranks)
        self.at_s = at_s


class TestbedError(Error):
    """An emulated cluster could not be made or removed.

    Attributes:
        lacks: What this machine lacks for it, for example `"ip"`, `"network namespaces"` or `"/dev/net/tun"`. None if something
            else went wrong.
    """

    __test__ = False  # not a test class, in spite of its name: for pytest

    def __init__(self, message: str = "", *, lacks: str | None = None) -> None:
        """Take a message for people, and the attribute."""
        super().__init__(message)
        self.lacks = lacks


class UsageError(Error):
    """The call or the command line is invalid.

    Attributes:
        rank: If ranks make different calls, another rank, whose call differs from this one's. Otherwise None.
    """

    def __init__(self, message: str = "", *, rank: int | None = None) -> None:
        """Take a message for people, and the attribute."""
        super().__init__(message)
        self.rank = rank


class MissingExtraError(UsageError, ModuleNotFoundError):
    """A package that this part of Hocket needs is not installed; the message names the extra that brings it."""

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        """Take a message for people, and the name of the missing module."""
        super().__init__(message)
        self.name = name
