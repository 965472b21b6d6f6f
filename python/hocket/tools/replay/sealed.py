"""TLS between two nodes of a replay, with HOCKET_TLS=1: both prove that they know the accepting node's token, in this very session.

Sessions have no certificates: a proof covers 32 bytes that only the two ends of a session know, so that nobody between them can
pass it on.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct

from hocket import _native

PROOF = struct.Struct("<32sI")
"""Greeting of a connecting node: its proof and number; the answer is a proof."""

READ_BYTES = 1 << 16


class Sealed:
    """One end of a session over a socket with a timeout, which shakes hands at once. OSError, RendezvousError: it cannot."""

    def __init__(self, peer: socket.socket, *, connects: bool) -> None:
        self._peer, self._tls = peer, _native.Tls(connects=connects)
        self._came = b""
        peer.sendall(self._tls.send())
        while (binding := self._tls.binding) is None:
            self._came += self._tls.receive(self._read())
            peer.sendall(self._tls.send())
        self._binding = binding

    def connect(self, token: bytes, node: int) -> None:
        """Prove to the accepting node that this one knows its token, and check that it does."""
        self._peer.sendall(self._tls.send(PROOF.pack(self._proof(token, b"connects"), node)))
        if not hmac.compare_digest(self._exactly(32), self._proof(token, b"accepts")):
            raise ConnectionRefusedError("it does not know its token")

    def accept(self, token: bytes) -> int | None:
        """Return the number of a connecting node that knows the token; None: it does not."""
        shown, node = PROOF.unpack(self._exactly(PROOF.size))
        if not hmac.compare_digest(shown, self._proof(token, b"connects")):
            return None
        self._peer.sendall(self._tls.send(self._proof(token, b"accepts")))
        return int(node)

    def seal(self, plain: memoryview) -> memoryview:
        """Return what to send for `plain`."""
        return memoryview(self._tls.send(bytes(plain)))

    def opened(self, data: memoryview) -> bytes:
        """Return the plain bytes in what came. RendezvousError: it was changed on its way."""
        return self._tls.receive(bytes(data))

    def _proof(self, token: bytes, side: bytes) -> bytes:
        return hmac.digest(token, side + self._binding, hashlib.sha256)

    def _exactly(self, size: int) -> bytes:
        while len(self._came) < size:
            self._came += self._tls.receive(self._read())
        if len(self._came) > size:
            # Nobody has begun to send messages.
            raise ConnectionAbortedError
        came, self._came = self._came, b""
        return came

    def _read(self) -> bytes:
        data = self._peer.recv(READ_BYTES)
        if not data or self._tls.ended:
            raise ConnectionAbortedError
        return data
