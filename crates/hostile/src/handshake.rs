//! The mutual challenge against a stranger that sees all bytes of both sides but does not know the secret: it never
//! gets in.

use hocket_ids::Rank;
use hocket_protocol::handshake::{
    Acceptor, CHALLENGE_BYTES, Connector, HELLO_BYTES, LaneId, NONCE_BYTES, PROOF_BYTES,
};

const SECRET: &[u8] = b"known to ranks alone";
const OURS: [u8; NONCE_BYTES] = [1; NONCE_BYTES];
const THEIRS: [u8; NONCE_BYTES] = [2; NONCE_BYTES];

/// The stranger's hello and proof to an acceptor, and its challenge to a caller.
pub fn run(bytes: &[u8]) {
    let Some((hello, rest)) = bytes.split_first_chunk::<HELLO_BYTES>() else { return };
    let Some((challenge, rest)) = rest.split_first_chunk::<CHALLENGE_BYTES>() else { return };
    let Some(proof) = rest.first_chunk::<PROOF_BYTES>() else { return };
    if let Ok(acceptor) = Acceptor::handle_hello(SECRET, Rank(0), hello, OURS) {
        assert!(acceptor.challenge() != *challenge, "the stranger can prove what an acceptor proves");
        assert!(acceptor.handle_proof(proof).is_err(), "an acceptor lets a stranger in");
    }
    let caller = Connector::new(SECRET, LaneId { from: Rank(1), to: Rank(0), lane: 0, lanes: 1 }, THEIRS);
    assert!(caller.handle_challenge(challenge).is_err(), "a caller trusts a stranger");
}

/// Messages of real ranks, with other nonces, and to another rank.
pub fn seeds() -> Vec<Vec<u8>> {
    [0, 1]
        .map(|to| {
            let caller = Connector::new(
                SECRET,
                LaneId { from: Rank(1), to: Rank(to), lane: 1, lanes: 2 },
                [9; NONCE_BYTES],
            );
            let acceptor =
                Acceptor::handle_hello(SECRET, Rank(to), &caller.hello(), [8; NONCE_BYTES]).unwrap();
            let proof = caller.handle_challenge(&acceptor.challenge()).unwrap();
            [&caller.hello()[..], &acceptor.challenge(), &proof].concat()
        })
        .to_vec()
}
