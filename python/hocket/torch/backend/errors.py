"""Errors of the backend: RuntimeErrors, as from PyTorch's backends, that are also Hocket's errors with attributes.

`except RuntimeError` catches them in programs that know nothing of Hocket; `except hocket.errors.PeerError` tells which rank.
"""

from __future__ import annotations

from hocket.errors import Error, PeerError, RendezvousError, UsageError

CLOSED = "Connection closed by peer"
"""Gloo's words for a rank that has gone: programs that know nothing of Hocket look for them."""
GONE = ("lost", "left")


class BackendError(Error, RuntimeError):
    """Error of Hocket in a collective, a message or a group of `torch.distributed`."""


class BackendPeerError(PeerError, BackendError):
    """A rank of the group's job died, stalled or broke the protocol; attributes are those of PeerError."""


class BackendRendezvousError(RendezvousError, BackendError):
    """The ranks of a group did not meet; attributes are those of RendezvousError."""


class BackendUsageError(UsageError, BackendError):
    """The call is invalid."""


def as_torch(error: BaseException) -> RuntimeError:
    """Return the error in the form that PyTorch's callers expect: a new object for each `raise`, caused by the original."""
    text = str(error) or type(error).__name__
    if isinstance(error, PeerError) and error.why in GONE and not isinstance(error, BackendError):
        what, *hints = text.split("\n")
        text = "\n".join([f"{what} ({CLOSED})", *hints])
    again = _kind(error)(text)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error
    return again


def _kind(error: BaseException) -> type[RuntimeError]:
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
