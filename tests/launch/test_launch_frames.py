"""The store's wire format against hostile and fragmented bytes, without a socket."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.job.store import frames, messages
from hocket.job.store.frames import FrameError, Frames
from hocket.job.store.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    WELCOME,
    Acceptor,
    Connector,
    HandshakeError,
)

payloads = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


def taken(decoder):
    while (payload := decoder.poll()) is not None:
        yield payload


@given(payloads, st.lists(st.integers(1, 50), max_size=60))
def test_frames_arrive_whole_however_the_network_cuts_them(sent, cuts):
    """A request that TCP delivers in pieces would be misread, and the rank's connection dropped."""
    stream = b"".join(frames.encode(payload) for payload in sent)
    decoder, got = Frames(), []
    for cut in [*cuts, len(stream)]:
        decoder.feed(stream[:cut])
        stream = stream[cut:]
        got += taken(decoder)
    assert got == sent


@given(st.binary(max_size=400))
def test_garbage_gives_frames_or_a_frame_error(data):
    """Bytes of a confused client would end the server's thread, and with it the job."""
    decoder, outcome = Frames(), "frames"
    decoder.feed(data)
    try:
        for payload in taken(decoder):
            assert 0 < len(payload) <= len(data)
            with pytest.raises(FrameError):
                messages.read_request(payload + b"\xff")
    except FrameError as error:
        outcome = str(error)
    assert outcome == "frames" or "FRAME_BYTES_MAX" in outcome


@pytest.mark.parametrize("size", [0, frames.FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_its_bytes_come(size):
    """A single header could make the server hold four gigabytes."""
    decoder = Frames()
    decoder.feed(size.to_bytes(4, "big"))
    with pytest.raises(FrameError, match=f"frame of {size} bytes"):
        decoder.poll()


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"op":"fly"}',
        b'{"op":"get","key":"","timeout_s":1}',
        b'{"op":"get","key":"a","timeout_s":-1}',
        b'{"op":"get","key":"a","timeout_s":1,"more":1}',
        b'{"op":"get","key":"' + b"k" * 513 + b'","timeout_s":1}',
        b'{"op":"gather","name":"a","rank":-1,"world":1,"value":1,"timeout_s":1}',
        b'{"op":"gather","name":"a","rank":0,"world":0,"value":1,"timeout_s":1}',
        b'{"op":"hello","rank":99999999,"who":"x"}',
        b'{"op":"set","key":"a","value":' + b"[" * 100_000 + b"}",
        b'{"op":"set","key":"\xff\xfe","value":1}',
        b'{"op":"add","key":"a","n":1e999}',
    ],
)
def test_each_way_a_request_can_lie_is_refused(text):
    """A malformed request would raise something the server does not expect, or be acted on."""
    with pytest.raises(FrameError, match="no request"):
        messages.read_request(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda s: st.lists(s) | st.dictionaries(st.text(max_size=8), s),
    )
)
def test_any_json_is_a_request_or_a_frame_error(tree):
    """Well-formed JSON of the wrong shape would raise something the server does not expect."""
    with pytest.raises(FrameError):
        messages.read_request(json.dumps(tree).encode())


SECRET, BINDING = b"s" * 16, b"b" * 32


def test_both_sides_that_know_the_secret_welcome_each_other():
    """No rank could reach the store."""
    connector, acceptor = Connector(SECRET, BINDING), Acceptor(SECRET, BINDING)
    challenge = acceptor.handle_hello(connector.hello())
    assert len(connector.hello()) == HELLO_BYTES
    assert len(challenge) == CHALLENGE_BYTES
    proof = connector.handle_challenge(challenge)
    assert len(proof) == PROOF_BYTES
    assert acceptor.handle_proof(proof) == WELCOME


def test_a_rank_notices_the_store_of_another_job():
    """A rank would tell its values to, and wait for, another job's store."""
    connector = Connector(SECRET, BINDING)
    challenge = Acceptor(b"t" * 16, BINDING).handle_hello(connector.hello())
    with pytest.raises(HandshakeError, match="another job"):
        connector.handle_challenge(challenge)


def test_the_store_refuses_a_proof_without_the_secret_a_replay_and_a_reflection():
    """A stranger who listened, or who mirrors our own messages, would get in."""
    connector, acceptor = Connector(SECRET, BINDING), Acceptor(SECRET, BINDING)
    challenge = acceptor.handle_hello(connector.hello())
    proof = connector.handle_challenge(challenge)
    replayed = Acceptor(SECRET, BINDING)
    replayed.handle_hello(connector.hello())
    with pytest.raises(HandshakeError):
        replayed.handle_proof(proof)
    with pytest.raises(HandshakeError):
        acceptor.handle_proof(challenge[HELLO_BYTES:])
    with pytest.raises(HandshakeError):
        acceptor.handle_proof(bytes(PROOF_BYTES))


def test_a_proof_made_for_another_session_is_refused():
    """Somebody in the middle, with a session to either side, could pass the proofs on and read everything."""
    connector, acceptor = Connector(SECRET, BINDING), Acceptor(SECRET, b"c" * 32)
    challenge = acceptor.handle_hello(connector.hello())
    with pytest.raises(HandshakeError, match="secret"):
        connector.handle_challenge(challenge)
    honest = Acceptor(SECRET, BINDING)
    proof = connector.handle_challenge(honest.handle_hello(connector.hello()))
    with pytest.raises(HandshakeError, match="secret"):
        acceptor.handle_proof(proof)


@given(st.binary(min_size=1, max_size=HELLO_BYTES))
def test_a_stranger_is_recognised_by_its_first_bytes(data):
    """A web browser that waits for an answer would keep a rank waiting, too."""
    if not data.startswith(b"H"):
        with pytest.raises(HandshakeError, match="does not speak"):
            Acceptor(SECRET, BINDING).handle_hello(data)
