"""The exceptions that Hocket raises: one short tree. Every message says what, where and what to do next."""


class Error(Exception):
    """Anything that Hocket reports; catch this to catch all of them."""


class ArtefactError(Error):
    """A cluster, profile, plan or trace file cannot be read: missing, truncated, invalid or of a newer version."""


class PolicyError(Error):
    """A policy cannot be traced, raised in a handler, or makes programs that are refused; the message has its file and line."""


class ProgramError(Error):
    """A program is refused: text that does not parse, or ops that lose, double, race or deadlock."""


class RendezvousError(Error):
    """Ranks could not find each other, or disagree about the job: address, world size, secret, model."""


class PeerError(Error):
    """A rank of the running job died, stalled or spoke nonsense; the message names it."""


class SimulationError(Error):
    """A simulated job did not end: the message has who is stuck, the chain of waits and the first op that never ended."""


class TestbedError(Error):
    """An emulated cluster could not be made or removed."""

    __test__ = False  # not a test class, whatever its name looks like to pytest


class UsageError(Error):
    """The call or the command line asks for something that cannot be."""


class MissingExtraError(UsageError, ModuleNotFoundError):
    """A package is not installed that this part of Hocket needs; the message names the extra that brings it."""
