"""Mutual proof of the job's secret before any frame is parsed, without I/O: HMAC-SHA256 over both nonces and the session.

    connector → acceptor   magic, nonce
    acceptor → connector   magic, nonce, proof(acceptor)
    connector → acceptor   proof(connector)
    acceptor → connector   WELCOME

All messages have a fixed size and travel within TLS (`_native.Tls`). Each proof covers both nonces and the role, so
neither replay nor reflection passes. It also covers the binding that TLS exports from this very session: a man in the
middle has two sessions with two bindings, and cannot pass proofs on.
"""

from __future__ import annotations

import hmac
import secrets

from hocket.errors import RendezvousError

MAGIC = b"HKSTORE\x02"
NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
CHALLENGE_BYTES = HELLO_BYTES + PROOF_BYTES
WELCOME = b"W"
STRANGER = b"HKOTHER\x01"


class HandshakeError(RendezvousError):
    """Error: the other side is no store or client of this job."""


class OtherSecretError(HandshakeError):
    """Error: the other side knows another secret. `claimed`: the rank that it claims to be, which nothing proves, or None."""

    def __init__(self, message: str = "", *, claimed: int | None = None) -> None:
        super().__init__(message)
        self.claimed = claimed


def check_magic(message: bytes) -> None:
    """Raise HandshakeError if the first received bytes, however few, cannot begin a message."""
    if not MAGIC.startswith(message[: len(MAGIC)]):
        raise HandshakeError("it does not speak the protocol of Hocket's store, or another version of it")


class Connector:
    def __init__(self, secret: bytes, binding: bytes) -> None:
        """Draw a nonce."""
        self._key = (secret, binding)
        self._nonce = secrets.token_bytes(NONCE_BYTES)

    def hello(self) -> bytes:
        return MAGIC + self._nonce

    def handle_challenge(self, message: bytes) -> bytes:
        """Check the acceptor's proof and return ours."""
        theirs = _nonce(message)
        _verify(_proof(*self._key, b"acceptor", self._nonce, theirs), message[HELLO_BYTES:])
        return _proof(*self._key, b"connector", self._nonce, theirs)


class Acceptor:
    """Server's side of one connection."""

    def __init__(self, secret: bytes, binding: bytes) -> None:
        """Draw a nonce."""
        self._key = (secret, binding)
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._theirs = b""

    def handle_hello(self, message: bytes) -> bytes:
        """Read the first message and return the challenge."""
        self._theirs = _nonce(message)
        return MAGIC + self._nonce + _proof(*self._key, b"acceptor", self._theirs, self._nonce)

    def handle_proof(self, message: bytes) -> bytes:
        """Check the connector's proof and return WELCOME."""
        if message.startswith(STRANGER):
            at = len(STRANGER)
            claimed = int.from_bytes(message[at : at + 8], "big", signed=True)
            raise OtherSecretError(OTHER, claimed=claimed if claimed >= 0 else None)
        _verify(_proof(*self._key, b"connector", self._theirs, self._nonce), message)
        return WELCOME


def stranger(rank: int | None) -> bytes:
    """Return, instead of a proof, the rank of a connector that knows another secret than the acceptor."""
    number = -1 if rank is None else rank
    return (STRANGER + number.to_bytes(8, "big", signed=True)).ljust(PROOF_BYTES, b"\0")


def _nonce(message: bytes) -> bytes:
    check_magic(message)
    return message[len(MAGIC) : HELLO_BYTES]


OTHER = "it does not know this job's secret: another job uses this address, or HOCKET_SECRET differs"


def _proof(secret: bytes, binding: bytes, role: bytes, connector: bytes, acceptor: bytes) -> bytes:
    return hmac.digest(secret, b"hocket store " + role + connector + acceptor + binding, "sha256")


def _verify(expected: bytes, given: bytes) -> None:
    if not hmac.compare_digest(expected, given):
        raise OtherSecretError(OTHER)
