//! A rank's TLS configuration: versions, ciphers, its own key pair, and the keys that it accepts.
//!
//! The key pair lives as long as the process. Any key of the other side is accepted: a peer authenticates itself by its
//! proof of the job's secret, bound to the session.

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, cipher_suite, sign};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// Configuration of both sides of a session.
#[derive(Debug)]
pub struct Credentials {
    connector: Arc<ClientConfig>,
    acceptor: Arc<ServerConfig>,
}

impl Credentials {
    /// With a fresh key pair.
    pub fn new() -> Result<Self, Error> {
        let provider = Arc::new(CryptoProvider {
            // The fastest cipher on processors with AES instructions, and one for processors without.
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            ..aws_lc_rs::default_provider()
        });
        let any = AnyKey(provider.signature_verification_algorithms);
        let mut connector = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any))
            .with_no_client_auth();
        connector.resumption = Resumption::disabled();
        connector.enable_sni = false;
        let key = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(key_pair()?)));
        let mut acceptor = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(key);
        acceptor.send_tls13_tickets = 0;
        Ok(Self { connector: Arc::new(connector), acceptor: Arc::new(acceptor) })
    }

    /// Configuration of a session that we open.
    pub(super) fn connector(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
        Ok((Arc::clone(&self.connector), nobody()?))
    }

    /// Configuration of a session that a peer opens.
    pub(super) fn acceptor(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.acceptor)
    }
}

/// TLS requires a name; it is neither checked nor sent.
fn nobody() -> Result<ServerName<'static>, Error> {
    ServerName::try_from("hocket.invalid").map_err(|error| Error::General(error.to_string()))
}

fn key_pair() -> Result<CertifiedKey, Error> {
    let failed = |_| Error::General("cannot make a key pair".into());
    let random = ::aws_lc_rs::rand::SystemRandom::new();
    let pair = ::aws_lc_rs::signature::Ed25519KeyPair::generate_pkcs8(&random).map_err(failed)?;
    let key = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pair.as_ref()))?;
    let public = key.public_key().ok_or_else(|| Error::General("a key pair without a public key".into()))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(CertifiedKey::new(vec![public], key))
}

/// Accepts every key whose private half the peer holds.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
