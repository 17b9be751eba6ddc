//! The client certificate verifier. It always verifies that the client holds its key. It verifies the chain either at once or
//! after the handshake.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use identity::{Certname, ClientIdentity, Reason};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;
use crate::der::{self, Reader};
use crate::legacy_signatures;
use crate::signature::{self, SignatureFault};
use crate::store::TrustStore;

/// Whether a client must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientCert {
    /// The proxy requests a certificate; a client without one is anonymous. The default, because enrolment needs it.
    #[default]
    Optional,
    /// Without a certificate, the handshake fails with an alert.
    Required,
    /// The proxy requests no certificate, and every client is anonymous.
    None,
}

/// How a client with an invalid certificate is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnInvalid {
    /// After the handshake, with a response that explains the refusal. The default.
    #[default]
    Defer,
    /// During the handshake, with an alert.
    Abort,
}

/// A listener's requirements for clients. Different policies never share TLS sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerPolicy {
    /// Whether a certificate is required.
    pub client_cert: ClientCert,
    /// How an invalid certificate is refused.
    pub on_invalid: OnInvalid,
}

/// Requests a certificate from clients and verifies that they hold its key.
///
/// With [`OnInvalid::Defer`], any certificate within the size limits passes, and the caller must verify `peer_certificates()`
/// with [`TrustStore::verify`] right after the handshake. A resumed session skips this verifier whatever the policy is, so the
/// caller must verify it in the same way.
pub struct ClientVerifier {
    policy: ListenerPolicy,
    current: Arc<dyn Fn() -> Arc<TrustStore> + Send + Sync>,
    hints: Vec<DistinguishedName>,
}

impl ClientVerifier {
    /// Creates a verifier that loads the active trust store at each call of `current`.
    ///
    /// The hints that it sends are the CA subjects of the store that is active now. Create a new verifier when the bundle
    /// changes, so that clients with several certificates choose the right one. Verdicts do not depend on the hints.
    pub fn new(
        policy: ListenerPolicy,
        current: Arc<dyn Fn() -> Arc<TrustStore> + Send + Sync>,
    ) -> Self {
        let hints = hints(&current());
        Self {
            policy,
            current,
            hints,
        }
    }

    /// Takes the hints from a store that is about to become active.
    #[must_use]
    pub fn hinting(mut self, store: &TrustStore) -> Self {
        self.hints = hints(store);
        self
    }

    /// The policy.
    pub fn policy(&self) -> ListenerPolicy {
        self.policy
    }

    fn verify_now(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(leaf)
            .chain(sent)
            .map(|der| CertificateDer::from(der.as_ref()))
            .collect();
        match (self.current)().verify(&chain, now).identity {
            ClientIdentity::Verified(_) => Ok(ClientCertVerified::assertion()),
            ClientIdentity::Refused(refusal) => {
                REFUSED_NAME.set(refusal.claimed);
                Err(alert(refusal.reason))
            }
            ClientIdentity::Anonymous => Err(Error::NoCertificatesPresented),
        }
    }
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.policy.client_cert != ClientCert::None
    }

    fn client_auth_mandatory(&self) -> bool {
        self.policy.client_cert == ClientCert::Required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        REFUSED_NAME.take();
        let bytes: usize =
            end_entity.len() + intermediates.iter().map(|der| der.len()).sum::<usize>();
        if intermediates.len() >= PRESENTED_CERTIFICATES_MAX || bytes > PRESENTED_BYTES_MAX {
            return Err(HandshakeFault::TooLarge.into());
        }
        let leaf = Certificate::read(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if !signature::is_verifiable(leaf.spki)
            && !(self.current)().anchors.legacy.may_admit_key_of(&leaf)
        {
            return Err(HandshakeFault::Key.into());
        }
        match self.policy.on_invalid {
            OnInvalid::Defer => Ok(ClientCertVerified::assertion()),
            OnInvalid::Abort => self.verify_now(end_entity, intermediates, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let leaf = read(cert)?;
        match check_tls12(&(self.current)(), message, &leaf, dss) {
            Ok(()) => Ok(HandshakeSignatureValid::assertion()),
            Err(SignatureFault::Wrong) => Err(CertificateError::BadSignature.into()),
            Err(SignatureFault::Unsupported) => Err(HandshakeFault::Key.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let leaf = read(cert)?;
        if !signature::is_verifiable(leaf.spki) {
            return Err(HandshakeFault::SmallKey.into());
        }
        verify_tls13_signature_with_raw_key(
            message,
            &leaf.public_key(),
            dss,
            &signature::algorithms(),
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        legacy_signatures::schemes(&(self.current)().anchors.legacy)
    }
}

/// Why a handshake was refused, for the access record; none if the failure does not concern a client certificate.
pub fn handshake_reason(error: &Error) -> Option<Reason> {
    let Error::InvalidCertificate(error) = error else {
        return None;
    };
    Some(match error {
        CertificateError::Revoked => Reason::Revoked,
        CertificateError::Expired => Reason::Expired,
        CertificateError::NotValidYet => Reason::NotYetValid,
        CertificateError::UnknownIssuer => Reason::UnknownIssuer,
        CertificateError::UnknownRevocationStatus => Reason::CrlMissing,
        CertificateError::ExpiredRevocationList => Reason::CrlExpired,
        CertificateError::BadSignature => Reason::BadSignature,
        CertificateError::UnhandledCriticalExtension => Reason::CriticalExtension,
        CertificateError::InvalidPurpose => Reason::WrongPurpose,
        CertificateError::Other(OtherError(error)) => {
            match error.downcast_ref::<HandshakeFault>() {
                Some(HandshakeFault::Refused(reason)) => *reason,
                Some(HandshakeFault::Key | HandshakeFault::SmallKey) => {
                    Reason::UnsupportedAlgorithm
                }
                Some(HandshakeFault::TooLarge) | None => Reason::Malformed,
            }
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            Reason::UnsupportedAlgorithm
        }
        _ => Reason::Malformed,
    })
}

thread_local! {
    /// The name in a refused certificate. The rustls errors with the appropriate alerts have no room for it, and the client's
    /// certificates are no longer available after an error.
    static REFUSED_NAME: Cell<Option<Certname>> = const { Cell::new(None) };
}

/// The unverified name in the certificate because of which a handshake on this thread was just refused.
///
/// Call it right after the handshake returns its error, before another handshake runs.
pub fn take_refused_name() -> Option<Certname> {
    REFUSED_NAME.take()
}

/// Faults for which rustls has no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HandshakeFault {
    #[error(
        "the client sent more than {PRESENTED_CERTIFICATES_MAX} certificates or {PRESENTED_BYTES_MAX} bytes of them"
    )]
    TooLarge,
    #[error(
        "the client's type or size of key is not supported (RSA under 2048 bits, DSA, or an unsupported curve)"
    )]
    Key,
    #[error(
        "the RSA key has fewer than 2048 bits: the proxy can verify it only in TLS 1.2, with PKCS #1 signatures and SHA-256 or SHA-512"
    )]
    SmallKey,
    #[error("the client's certificate {}", .0.sentence())]
    Refused(Reason),
}

impl From<HandshakeFault> for Error {
    fn from(fault: HandshakeFault) -> Self {
        CertificateError::Other(OtherError(Arc::new(fault))).into()
    }
}

/// The rustls error that sends the appropriate alert, so that the client prints a useful message.
fn alert(reason: Reason) -> Error {
    match reason {
        Reason::Revoked => CertificateError::Revoked.into(),
        Reason::Expired => CertificateError::Expired.into(),
        Reason::NotYetValid => CertificateError::NotValidYet.into(),
        Reason::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        Reason::CrlMissing => CertificateError::UnknownRevocationStatus.into(),
        Reason::CrlExpired => CertificateError::ExpiredRevocationList.into(),
        Reason::BadSignature => CertificateError::BadSignature.into(),
        Reason::WrongPurpose => CertificateError::InvalidPurpose.into(),
        Reason::CriticalExtension => CertificateError::UnhandledCriticalExtension.into(),
        reason => HandshakeFault::Refused(reason).into(),
    }
}

fn read<'a>(cert: &'a CertificateDer<'_>) -> Result<Certificate<'a>, Error> {
    Certificate::read(cert).map_err(|_| CertificateError::BadEncoding.into())
}

/// Verifies that the peer of a TLS 1.2 handshake holds the key of its certificate.
fn check_tls12(
    trust: &TrustStore,
    message: &[u8],
    leaf: &Certificate<'_>,
    dss: &DigitallySignedStruct,
) -> Result<(), SignatureFault> {
    if trust.anchors.legacy.may_admit_key_of(leaf) {
        legacy_signatures::check_small_key(message, dss.signature(), dss.scheme, leaf.spki)
    } else {
        signature::check_tls12(message, dss.signature(), dss.scheme, &leaf.public_key())
    }
}

fn hints(store: &TrustStore) -> Vec<DistinguishedName> {
    let contents = store
        .anchors
        .subjects()
        .filter_map(|name| Reader::new(name).expect(der::SEQUENCE).ok());
    let hints: Vec<_> = contents
        .map(|name| DistinguishedName::in_sequence(name.value))
        .collect();
    let bytes: usize = hints.iter().map(|hint| hint.as_ref().len()).sum();
    // Without hints, a client sends any certificate. Incomplete hints would mislead the clients of the missing CAs.
    if bytes > HINT_BYTES_MAX {
        Vec::new()
    } else {
        hints
    }
}

/// Maximum number of certificates that a client may send. A path has at most six intermediates, and some clients also send
/// their root.
pub const PRESENTED_CERTIFICATES_MAX: usize = 16;

/// Maximum size of the certificates that a client sends, in bytes. The proxy stores them while the connection is open.
pub const PRESENTED_BYTES_MAX: usize = 32 * 1024;

/// Maximum size of the CA subjects that are sent as hints, in bytes. Every full handshake contains them.
const HINT_BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_alert_is_the_reason_in_the_record() {
        for reason in Reason::ALL {
            assert_eq!(handshake_reason(&alert(reason)), Some(reason));
        }
    }

    #[test]
    fn errors_unrelated_to_client_certificates_have_no_reason() {
        assert_eq!(handshake_reason(&Error::NoCertificatesPresented), None);
        let faults = [
            (HandshakeFault::TooLarge, Reason::Malformed),
            (HandshakeFault::Key, Reason::UnsupportedAlgorithm),
            (HandshakeFault::SmallKey, Reason::UnsupportedAlgorithm),
        ];
        for (fault, reason) in faults {
            let words = fault.to_string();
            assert!(
                words.contains("client") || words.contains("TLS 1.2"),
                "{words}"
            );
            assert_eq!(handshake_reason(&fault.into()), Some(reason));
        }
        let encoding = Error::InvalidCertificate(CertificateError::BadEncoding);
        assert_eq!(handshake_reason(&encoding), Some(Reason::Malformed));
    }
}
