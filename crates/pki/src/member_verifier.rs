//! Verifies members' certificates: paths and revocation as for clients, and also the name.

use std::sync::Arc;

use identity::Reason;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::certificate::{Certificate, Subject, names};
use crate::fingerprint::fingerprint_of;
use crate::legacy_signatures;
use crate::refusal::{CertificateFault, claimed_certname};
use crate::signature::{self, SignatureFault};
use crate::store::TrustStore;

/// Why a member's certificate is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// The chain is not acceptable.
    #[error("the member's certificate {certificate} {what} ({reason}). {detail}")]
    Certificate {
        /// The reason.
        reason: Reason,
        /// The certificate.
        certificate: String,
        /// The reason, as the second part of a sentence.
        what: &'static str,
        /// Further details; may be empty.
        detail: String,
    },
    /// An old-style certificate whose name is only in the subject.
    #[error(
        "the member's certificate {certificate} has no subjectAltName, so it is not valid for {expected}; reissue it with dns_alt_names, or set `name_from_cn = true` in this pool's tls if its CN is that name"
    )]
    NoSubjectAltName {
        /// The certificate.
        certificate: String,
        /// The name to which the proxy connected.
        expected: String,
    },
    /// An old-style certificate whose subject is not that name.
    #[error(
        "the member's certificate {certificate} has no subjectAltName, and its CN is not {expected}; set `server_name` \
         to the CN if that is the member's name"
    )]
    WrongCommonName {
        /// The certificate.
        certificate: String,
        /// The name to which the proxy connected.
        expected: String,
    },
    /// The key is too small for the handshake.
    #[error(
        "the member's RSA key has fewer than 2048 bits: the proxy can verify it only in TLS 1.2, with PKCS #1 signatures and SHA-256 or SHA-512; create a new key for the member"
    )]
    SmallKey,
    /// The certificate belongs to another server.
    #[error(
        "the member's certificate {certificate} is valid for {presented}, not for {expected}; set `server_name` if that is the member's name"
    )]
    WrongName {
        /// The certificate.
        certificate: String,
        /// The name to which the proxy connected.
        expected: String,
        /// The names for which it is valid.
        presented: String,
    },
}

impl MemberError {
    /// Finds such an error in the error of a handshake with a member.
    pub fn find(error: &Error) -> Option<&Self> {
        match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
                error.downcast_ref()
            }
            _ => None,
        }
    }
}

impl From<MemberError> for Error {
    fn from(error: MemberError) -> Self {
        CertificateError::Other(OtherError(Arc::new(error))).into()
    }
}

impl From<CertificateFault> for MemberError {
    fn from(fault: CertificateFault) -> Self {
        Self::Certificate {
            what: match fault.reason {
                Reason::WrongPurpose => "is not valid for server authentication",
                Reason::NotAnEndEntity => "is a CA certificate, not a server certificate",
                reason => reason.sentence(),
            },
            reason: fault.reason,
            certificate: fault.certificate,
            detail: fault.detail,
        }
    }
}

/// Verifies members under one trust store.
#[derive(Debug)]
pub(crate) struct MemberVerifier {
    trust: Arc<TrustStore>,
    name_from_cn: bool,
}

impl MemberVerifier {
    /// Creates a verifier. `name_from_cn`: whether a certificate without a subjectAltName is valid for its CN.
    pub(crate) fn new(trust: Arc<TrustStore>, name_from_cn: bool) -> Self {
        Self {
            trust,
            name_from_cn,
        }
    }
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.trust
            .verify_path(end_entity, intermediates, KeyUsage::server_auth(), now)
            .map_err(MemberError::from)?;
        check_name(end_entity, server_name, self.name_from_cn)?;
        let name = server_name.to_str().into_owned();
        self.trust
            .memory
            .members_seen
            .note(name, end_entity, intermediates);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match small_key_of_legacy(&self.trust, cert) {
            Some(leaf) => {
                legacy_signatures::check_small_key(message, dss.signature(), dss.scheme, leaf.spki)
                    .map(|()| HandshakeSignatureValid::assertion())
                    .map_err(|fault| match fault {
                        SignatureFault::Wrong => CertificateError::BadSignature.into(),
                        SignatureFault::Unsupported => MemberError::SmallKey.into(),
                    })
            }
            None => verify_tls12_signature(message, cert, dss, &signature::algorithms()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match small_key_of_legacy(&self.trust, cert) {
            Some(_) => Err(MemberError::SmallKey.into()),
            None => verify_tls13_signature(message, cert, dss, &signature::algorithms()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        legacy_signatures::schemes(&self.trust.anchors.legacy)
    }
}

impl TrustStore {
    /// Checks a member's certificate, which another store has verified, against the active CRLs and blocks. The CRLs for
    /// clients may be fetched, and may therefore be newer than the files for members.
    ///
    /// # Errors
    /// The CRL of the CA that signed the certificate lists it, or the operator has blocked it.
    pub fn check_member(&self, own: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let Ok(read) = Certificate::read(own) else {
            return Ok(()); // No verifier accepted it.
        };
        let mut issuers = self.anchors.bundle.issuers.values();
        let listed = issuers.find_map(|issuer| {
            let key = SubjectPublicKeyInfoDer::from(&*issuer.spki);
            // Another CA with the same name has its own serials.
            let has_signed =
                || signature::check_signed(read.signed, &key) != Err(SignatureFault::Wrong);
            let is_revoked = issuer.has_name(read.issuer)
                && self.revocation.revokes(issuer, read.serial)
                && has_signed();
            is_revoked.then(|| self.revocation.described(issuer, read.serial))
        });
        let fault = match listed {
            Some(listed) => CertificateFault::new(Reason::Revoked, own, listed),
            None if self.is_blocked(own, &read, now) => {
                CertificateFault::new(Reason::Blocked, own, "")
            }
            None => return Ok(()),
        };
        Err(MemberError::from(fault).into())
    }

    /// Whether the operator has blocked this certificate or its name.
    fn is_blocked(&self, own: &[u8], read: &Certificate<'_>, now: UnixTime) -> bool {
        if self.deny.is_empty() {
            return false;
        }
        let issuer = Subject(read.issuer).to_string();
        let name = claimed_certname(own);
        self.deny.of_serial(&issuer, read.serial, now).is_some()
            || self
                .deny
                .of_fingerprint(&fingerprint_of(own), now)
                .is_some()
            || name.is_some_and(|name| self.deny.of_certname(&name, now).is_some())
    }
}

/// Checks the name of a certificate whose chain has been verified.
fn check_name(
    leaf: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    name_from_cn: bool,
) -> Result<(), Error> {
    let unreadable = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let facts = Certificate::read(leaf).map_err(|_| unreadable())?;
    let certificate = Subject(facts.subject).to_string();
    let expected = server_name.to_str().into_owned();
    // If there is any subjectAltName, even without a DNS name, the CN is ignored (RFC 6125, 6.4.4).
    if facts.extensions.subject_alt_name.is_none() && name_from_cn {
        let is_named = match server_name {
            ServerName::DnsName(name) => is_cn_of(facts.subject, name.as_ref()),
            // A CN is never an address.
            _ => false,
        };
        return if is_named {
            Ok(())
        } else {
            Err(MemberError::WrongCommonName {
                certificate,
                expected,
            }
            .into())
        };
    }
    if facts.extensions.subject_alt_name.is_none() {
        return Err(MemberError::NoSubjectAltName {
            certificate,
            expected,
        }
        .into());
    }
    let parsed = EndEntityCert::try_from(leaf).map_err(|_| unreadable())?;
    if parsed.verify_is_valid_for_subject_name(server_name).is_ok() {
        return Ok(());
    }
    let presented = match names(leaf) {
        names if names.is_empty() => "no readable name".into(),
        names => names.join(", "),
    };
    Err(MemberError::WrongName {
        certificate,
        expected,
        presented,
    }
    .into())
}

/// The certificate, if its key is too small for other CAs and a named CA may have certified it.
fn small_key_of_legacy<'a>(
    trust: &TrustStore,
    cert: &'a CertificateDer<'_>,
) -> Option<Certificate<'a>> {
    let leaf = Certificate::read(cert).ok()?;
    trust.anchors.legacy.may_admit_key_of(&leaf).then_some(leaf)
}

/// Whether a subject has exactly one CN, which equals this name. There are no wildcards, and case is ignored.
fn is_cn_of(subject: &[u8], name: &str) -> bool {
    identity::Subject::only_cn(subject).is_some_and(|cn| cn.eq_ignore_ascii_case(name))
}
