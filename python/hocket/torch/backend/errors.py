"""Errors of the backend: RuntimeErrors, as PyTorch's backends raise them, that are Hocket's errors with their attributes too.

`except RuntimeError` catches them in programs that know nothing of Hocket; `except hocket.errors.PeerError` tells which rank.
"""

from __future__ import annotations

from hocket.errors import Error, PeerError, RendezvousError, UsageError


class BackendError(Error, RuntimeError):
    """What Hocket reports, out of a collective, a message or a group of `torch.distributed`."""


class BackendPeerError(PeerError, BackendError):
    """A rank of the group's job died, stalled or sent something that makes no sense; attributes as PeerError."""


class BackendRendezvousError(RendezvousError, BackendError):
    """The ranks of a group did not find each other; attributes as RendezvousError."""


class BackendUsageError(UsageError, BackendError):
    """The call asks for something that cannot be."""


def as_torch(error: Exception) -> RuntimeError:
    """The error as PyTorch's callers expect it: a new object for each `raise`, with the first one as its cause."""
    again = _kind(error)(str(error) or type(error).__name__)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error
    return again


def _kind(error: Exception) -> type[RuntimeError]:
    match error:
        case PeerError():
            return BackendPeerError
        case RendezvousError():
            return BackendRendezvousError
        case UsageError():
            return BackendUsageError
        case Error():
            return BackendError
    return RuntimeError
