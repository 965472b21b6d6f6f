//! The value that TLS 1.3 exports from a session, for proofs to cover.
//!
//! rustls exports it from its buffered sessions only; for ours it hands over the exporter secret, as to a key log, and the
//! rest of RFC 8446, §7.5 is done here: `Derive-Secret` and `HKDF-Expand-Label`. The tests hold it to rustls' own. All cipher
//! suites that we offer hash with SHA-256.

use hmac::{Hmac, KeyInit, Mac};
use rustls::KeyLog;
use sha2::{Digest, Sha256};
use std::sync::{Mutex, PoisonError};

/// Bytes of the value.
pub const BINDING_BYTES: usize = 32;

/// Registered with nobody; "EXPERIMENTAL" is the prefix for such (RFC 5705, §4).
pub(super) const LABEL: &str = "EXPERIMENTAL-hocket-channel-binding";

/// Takes the exporter secret of one session and keeps only what is derived from it.
#[derive(Default)]
pub struct Exporter(Mutex<Option<[u8; BINDING_BYTES]>>);

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter(..)")
    }
}

impl Exporter {
    /// Present once the session is up.
    pub fn binding(&self) -> Option<[u8; BINDING_BYTES]> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyLog for Exporter {
    fn log(&self, _: &str, _: &[u8], secret: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(export(secret));
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

fn export(secret: &[u8]) -> [u8; BINDING_BYTES] {
    let nothing = Sha256::digest([]);
    let derived = expand_label(secret, LABEL, &nothing);
    expand_label(&derived, "exporter", &nothing)
}

/// `HKDF-Expand-Label(secret, label, context, 32)`: one block of HKDF.
fn expand_label(secret: &[u8], label: &str, context: &[u8]) -> [u8; BINDING_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(&(BINDING_BYTES as u16).to_be_bytes());
    mac.update(&[(6 + label.len()) as u8]);
    mac.update(b"tls13 ");
    mac.update(label.as_bytes());
    mac.update(&[context.len() as u8]);
    mac.update(context);
    mac.update(&[1]);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::tls::Credentials;
    use std::io;
    use std::sync::Arc;

    /// Proofs would cover something else than the session: a constant, say, that anybody in the middle shares.
    #[test]
    fn it_is_what_rustls_exports() {
        let credentials = Credentials::new().unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let exporters = [Arc::new(Exporter::default()), Arc::new(Exporter::default())];
            let (mut connector, mut acceptor) = credentials.buffered(&exporters).unwrap();
            while connector.is_handshaking() || acceptor.is_handshaking() {
                let mut bytes = Vec::new();
                connector.write_tls(&mut bytes).unwrap();
                acceptor.read_tls(&mut io::Cursor::new(bytes)).unwrap();
                acceptor.process_new_packets().unwrap();
                let mut bytes = Vec::new();
                acceptor.write_tls(&mut bytes).unwrap();
                connector.read_tls(&mut io::Cursor::new(bytes)).unwrap();
                connector.process_new_packets().unwrap();
            }
            let theirs =
                connector.export_keying_material([0; BINDING_BYTES], LABEL.as_bytes(), None).unwrap();
            assert_eq!(exporters.each_ref().map(|exporter| exporter.binding()), [Some(theirs); 2]);
            seen.push(theirs);
        }
        assert_ne!(seen[0], seen[1], "two sessions export the same");
    }
}
