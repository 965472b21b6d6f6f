//! Mutual proof of the job's secret before any frame is parsed: HMAC-SHA256 over both sides' nonces.
//!
//! There are four messages of fixed size: the connector's hello, the acceptor's hello with its proof, the connector's
//! proof, and the acceptor's welcome, without which the connector could not tell a refusal from a slow peer. Each proof
//! covers both nonces, both ranks, the lane and the role, so neither replay nor reflection passes. Within TLS it also
//! covers a value that only the two ends of the session know (the binding), so that a man in the middle cannot pass
//! proofs on. No I/O here.

use hmac::{Hmac, KeyInit, Mac};
use hocket_ids::Rank;
use sha2::Sha256;
use std::fmt;

/// Length of a nonce in bytes.
pub const NONCE_BYTES: usize = 32;
/// Length of a proof in bytes.
pub const PROOF_BYTES: usize = 32;
/// Length of the connector's first message in bytes: magic, its rank, the rank it calls, the lane, the number of lanes, nonce.
pub const HELLO_BYTES: usize = 8 + LANE_ID_BYTES + NONCE_BYTES;
const LANE_ID_BYTES: usize = 4 * 4;
/// Length of the acceptor's answer in bytes: magic, nonce, proof.
pub const CHALLENGE_BYTES: usize = 8 + NONCE_BYTES + PROOF_BYTES;
/// The acceptor's last message.
pub const WELCOME: u8 = b'W';

const MAGIC: [u8; 8] = *b"HOCKET\x00\x03";

/// Why the other side is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The first bytes are not ours: the caller is a stranger, or of another version.
    NotAPeer,
    /// The caller requests a rank that lives elsewhere.
    WrongRank {
        /// The requested rank.
        wanted: Rank,
    },
    /// The other side does not know the job's secret.
    WrongSecret,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPeer => f.write_str("it does not speak Hocket's protocol, or another version of it"),
            Self::WrongRank { wanted } => write!(f, "it looks for rank {wanted}, which is not here"),
            Self::WrongSecret => f.write_str("it does not know this job's secret"),
        }
    }
}

impl std::error::Error for HandshakeError {}

#[derive(Clone, Copy)]
enum Role {
    Connector = 1,
    Acceptor = 2,
}

/// Identifies a connection: two ranks may have several, called lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId {
    /// The calling rank.
    pub from: Rank,
    /// The called rank.
    pub to: Rank,
    /// Number of the connection, from 0.
    pub lane: u32,
    /// Number of connections that the calling rank opens to the called one.
    pub lanes: u32,
}

impl LaneId {
    fn encode(self) -> [u8; LANE_ID_BYTES] {
        let mut bytes = [0; LANE_ID_BYTES];
        for (at, word) in [self.from.0, self.to.0, self.lane, self.lanes].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The connecting side.
pub struct Connector<'a> {
    secret: &'a [u8],
    id: LaneId,
    nonce: [u8; NONCE_BYTES],
    binding: &'a [u8],
}

impl<'a> Connector<'a> {
    /// Starts the connection `id`; `nonce` must be fresh and random.
    pub fn new(secret: &'a [u8], id: LaneId, nonce: [u8; NONCE_BYTES]) -> Self {
        Self { secret, id, nonce, binding: &[] }
    }

    /// Binds the proofs to a channel whose two ends alone know `binding`.
    #[must_use]
    pub fn bound_to(self, binding: &'a [u8]) -> Self {
        Self { binding, ..self }
    }

    /// The first message.
    pub fn hello(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..8 + LANE_ID_BYTES].copy_from_slice(&self.id.encode());
        bytes[8 + LANE_ID_BYTES..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Checks the acceptor's proof and returns our own.
    pub fn handle_challenge(
        &self,
        bytes: &[u8; CHALLENGE_BYTES],
    ) -> Result<[u8; PROOF_BYTES], HandshakeError> {
        if bytes[..8] != MAGIC {
            return Err(HandshakeError::NotAPeer);
        }
        let nonce = &bytes[8..8 + NONCE_BYTES];
        let proof = |role| proof(self.secret, role, self.id, [&self.nonce, nonce, self.binding]);
        verify(proof(Role::Acceptor), &bytes[8 + NONCE_BYTES..])?;
        Ok(proof(Role::Connector).finalize().into_bytes().into())
    }
}

/// The accepting side; made from the connector's hello.
pub struct Acceptor<'a> {
    secret: &'a [u8],
    id: LaneId,
    theirs: [u8; NONCE_BYTES],
    ours: [u8; NONCE_BYTES],
    binding: &'a [u8],
}

impl<'a> Acceptor<'a> {
    /// Parses a hello that reached rank `here`; `nonce` must be fresh and random.
    pub fn handle_hello(
        secret: &'a [u8],
        here: Rank,
        bytes: &[u8; HELLO_BYTES],
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Self, HandshakeError> {
        if bytes[..8] != MAGIC {
            return Err(HandshakeError::NotAPeer);
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let id = LaneId { from: Rank(word(8)), to: Rank(word(12)), lane: word(16), lanes: word(20) };
        if id.to != here {
            return Err(HandshakeError::WrongRank { wanted: id.to });
        }
        let mut theirs = [0; NONCE_BYTES];
        theirs.copy_from_slice(&bytes[8 + LANE_ID_BYTES..]);
        Ok(Self { secret, id, theirs, ours: nonce, binding: &[] })
    }

    /// Binds the proofs to a channel whose two ends alone know `binding`.
    #[must_use]
    pub fn bound_to(self, binding: &'a [u8]) -> Self {
        Self { binding, ..self }
    }

    /// The answer to the hello.
    pub fn challenge(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..8 + NONCE_BYTES].copy_from_slice(&self.ours);
        bytes[8 + NONCE_BYTES..].copy_from_slice(&self.proof(Role::Acceptor).finalize().into_bytes());
        bytes
    }

    /// Checks the connector's proof; its rank and lane may be trusted from here on.
    pub fn handle_proof(self, bytes: &[u8; PROOF_BYTES]) -> Result<LaneId, HandshakeError> {
        verify(self.proof(Role::Connector), bytes)?;
        Ok(self.id)
    }

    fn proof(&self, role: Role) -> Hmac<Sha256> {
        proof(self.secret, role, self.id, [&self.theirs, &self.ours, self.binding])
    }
}

/// `parts`: the connector's nonce, the acceptor's, and the binding; only the binding may have any length.
fn proof(secret: &[u8], role: Role, id: LaneId, parts: [&[u8]; 3]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(&MAGIC);
    mac.update(&[role as u8]);
    mac.update(&id.encode());
    for part in parts {
        mac.update(part);
    }
    mac
}

fn verify(expected: Hmac<Sha256>, proof: &[u8]) -> Result<(), HandshakeError> {
    expected.verify_slice(proof).map_err(|_| HandshakeError::WrongSecret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: LaneId = LaneId { from: Rank(3), to: Rank(1), lane: 5, lanes: 6 };

    fn run(secret_a: &[u8], secret_b: &[u8], here: Rank) -> Result<LaneId, HandshakeError> {
        let connector = Connector::new(secret_a, ID, [7; NONCE_BYTES]);
        let acceptor = Acceptor::handle_hello(secret_b, here, &connector.hello(), [9; NONCE_BYTES])?;
        let proof = connector.handle_challenge(&acceptor.challenge())?;
        acceptor.handle_proof(&proof)
    }

    /// Ranks of one job could not connect.
    #[test]
    fn same_secret_meets() {
        assert_eq!(run(b"job", b"job", Rank(1)), Ok(ID));
    }

    /// A stranger, or a second job on a reused port, could join.
    #[test]
    fn other_secret_or_rank_is_refused() {
        assert_eq!(run(b"job", b"other", Rank(1)), Err(HandshakeError::WrongSecret));
        assert_eq!(run(b"job", b"job", Rank(2)), Err(HandshakeError::WrongRank { wanted: Rank(1) }));
    }

    /// A man in the middle of two TLS sessions could pass the proofs of one on to the other, and eavesdrop.
    #[test]
    fn proofs_of_another_channel_are_refused() {
        let bindings: [[&[u8]; 2]; 4] = [[b"x", b"x"], [b"x", b"y"], [b"x", b""], [b"", b"x"]];
        for [ours, theirs] in bindings {
            let connector = Connector::new(b"job", ID, [7; NONCE_BYTES]).bound_to(ours);
            let hello = connector.hello();
            let acceptor = Acceptor::handle_hello(b"job", Rank(1), &hello, [9; NONCE_BYTES]).unwrap();
            let acceptor = acceptor.bound_to(theirs);
            let proof = connector.handle_challenge(&acceptor.challenge());
            assert_eq!(proof.is_ok(), ours == theirs);
            // Even if the connector answered, the acceptor would reject it.
            let expected = if ours == theirs { Ok(ID) } else { Err(HandshakeError::WrongSecret) };
            let nonces = &acceptor.challenge()[8..8 + NONCE_BYTES];
            let forged = super::proof(b"job", Role::Connector, ID, [&[7; NONCE_BYTES], nonces, ours]);
            assert_eq!(acceptor.handle_proof(&forged.finalize().into_bytes().into()), expected);
        }
    }

    /// An attacker who reflects our own proof would get in.
    #[test]
    fn reflected_proof_is_refused() {
        let connector = Connector::new(b"job", ID, [7; NONCE_BYTES]);
        let acceptor = Acceptor::handle_hello(b"job", Rank(1), &connector.hello(), [9; NONCE_BYTES]).unwrap();
        let own: [u8; PROOF_BYTES] = acceptor.challenge()[8 + NONCE_BYTES..].try_into().unwrap();
        assert_eq!(acceptor.handle_proof(&own), Err(HandshakeError::WrongSecret));
    }

    proptest! {
        /// A stranger could get in, or crash the listener, with arbitrary bytes.
        #[test]
        fn no_stranger_gets_in(hello: [[u8; 4]; 14], proof: [u8; PROOF_BYTES], challenge: [[u8; 8]; 9], ours in 0u8..3) {
            let mut hello: [u8; HELLO_BYTES] = hello.concat().try_into().unwrap();
            if ours > 0 {
                hello[..8].copy_from_slice(&MAGIC);
                hello[12..16].copy_from_slice(&1u32.to_le_bytes());
            }
            let acceptor = Acceptor::handle_hello(b"job", Rank(1), &hello, [9; NONCE_BYTES]);
            prop_assert_eq!(acceptor.is_ok(), ours > 0);
            if let Ok(acceptor) = acceptor {
                prop_assert_eq!(acceptor.handle_proof(&proof), Err(HandshakeError::WrongSecret));
            }
            let mut challenge: [u8; CHALLENGE_BYTES] = challenge.concat().try_into().unwrap();
            if ours > 1 {
                challenge[..8].copy_from_slice(&MAGIC);
            }
            let connector = Connector::new(b"job", ID, [7; NONCE_BYTES]);
            prop_assert!(connector.handle_challenge(&challenge).is_err());
        }

        /// An attacker could replay a recorded handshake, whole or changed in one bit.
        #[test]
        fn a_recorded_handshake_is_worth_nothing(fresh: [u8; NONCE_BYTES], bit in 0..(HELLO_BYTES + PROOF_BYTES) * 8) {
            let connector = Connector::new(b"job", ID, [7; NONCE_BYTES]);
            let hello = connector.hello();
            let before = Acceptor::handle_hello(b"job", Rank(1), &hello, [9; NONCE_BYTES]).unwrap();
            let proof = connector.handle_challenge(&before.challenge()).unwrap();
            prop_assume!(fresh != [9; NONCE_BYTES]);
            let again = Acceptor::handle_hello(b"job", Rank(1), &hello, fresh).unwrap();
            prop_assert_eq!(again.handle_proof(&proof), Err(HandshakeError::WrongSecret));

            let mut said = [&hello[..], &proof].concat();
            said[bit / 8] ^= 1 << (bit % 8);
            let (hello, proof) = said.split_first_chunk().unwrap();
            let admitted = Acceptor::handle_hello(b"job", Rank(1), hello, [9; NONCE_BYTES])
                .and_then(|acceptor| acceptor.handle_proof(proof.try_into().unwrap()));
            prop_assert!(admitted.is_err());
        }
    }
}
