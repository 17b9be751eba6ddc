//! A credential: the certificate chain and the key that the proxy presents to clients or members.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::{self, Certificate, Subject};
use crate::fingerprint::Fingerprint;
use crate::key::KeyKind;
use crate::pem::{self, Block, Named};
use crate::problem::PkiProblem;

/// A chain with its key.
#[derive(Clone, Debug)]
pub struct Credential {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    subject: String,
    key_kind: KeyKind,
    not_before: UnixTime,
    not_after: UnixTime,
    ends_with: Option<String>,
    authorization_extensions: Vec<String>,
    fingerprint: Fingerprint,
    warnings: Vec<String>,
}

impl Credential {
    /// Parses a chain, the leaf first, and its key (PKCS#8, PKCS#1 or SEC1).
    ///
    /// # Errors
    /// The bytes cannot be parsed, the key cannot sign, or the key does not belong to the leaf.
    pub fn parse(chain_pem: &Named<Vec<u8>>, key_pem: &Named<Vec<u8>>) -> Result<Self, PkiProblem> {
        let blocks = pem::certificates(chain_pem)?;
        for block in &blocks {
            Certificate::read(&block.der).map_err(|error| block.malformed("certificate", error))?;
        }
        let leaf = &blocks[0];
        let facts =
            Certificate::read(&leaf.der).map_err(|error| leaf.malformed("certificate", error))?;
        let key = pem::private_key(key_pem)?;
        let signing_key =
            aws_lc_rs::sign::any_supported_type(&key).map_err(|error| PkiProblem::UnusableKey {
                name: key_pem.name.clone(),
                why: error.to_string(),
            })?;
        let chain: Vec<CertificateDer<'static>> = blocks.iter().map(pem::certificate_der).collect();
        let certified = CertifiedKey::new(chain, signing_key);
        let subject = Subject(facts.subject).to_string();
        match certified.keys_match() {
            Ok(()) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                return Err(PkiProblem::KeyMismatch {
                    key: key_pem.name.clone(),
                    chain: chain_pem.name.clone(),
                    subject,
                });
            }
            Err(error) => return Err(leaf.malformed("certificate", error)),
        }
        let names = certificate::names(&leaf.der);
        let validity = Validity::of(&facts, &blocks);
        let mut warnings = Vec::new();
        if names.is_empty() {
            warnings.push(format!(
                "certificate {} ({subject}) has no subjectAltName: it is valid for no name, and agents refuse it",
                leaf.place()
            ));
        }
        Ok(Self {
            names,
            subject,
            key_kind: KeyKind::of(facts.spki),
            not_before: validity.begin,
            not_after: validity.end,
            ends_with: validity.ends_with,
            authorization_extensions: identity::authorization_extensions(&leaf.der),
            fingerprint: Fingerprint::of(blocks.iter().map(|block| &*block.der)),
            warnings,
            key: Arc::new(certified),
        })
    }

    /// The names for which the certificate is valid: DNS names and addresses of its subjectAltName.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The leaf's subject in RFC 2253.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Kind and size of the key, for example `RSA 4096`.
    pub fn key_kind(&self) -> String {
        self.key_kind.to_string()
    }

    /// When the last certificate of the chain becomes valid.
    pub fn not_before(&self) -> UnixTime {
        self.not_before
    }

    /// When the first certificate of the chain expires.
    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }

    /// The subject (RFC 2253) of the intermediate CA that expires first; none if the leaf expires first.
    pub fn ends_with(&self) -> Option<&str> {
        self.ends_with.as_deref()
    }

    /// The names of Puppet's authorization extensions in the leaf, for example `pp_cli_auth`. The proxy must not present such a
    /// credential to a member, because every client would get its rights.
    pub fn authorization_extensions(&self) -> &[String] {
        &self.authorization_extensions
    }

    /// Digest of the whole chain.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Problems that do not prevent the use of the credential.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The chain in DER, the leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    pub(crate) fn certified_key(&self) -> CertifiedKey {
        (*self.key).clone()
    }
}

/// How long a chain is valid as a whole.
struct Validity {
    begin: UnixTime,
    end: UnixTime,
    ends_with: Option<String>,
}

impl Validity {
    /// Follows the issuers from the leaf through the certificates of the file. Certificates that are not on this path, and a
    /// root, are ignored, because clients do not need them. If the file has several certificates of one CA, the one that
    /// expires last is used.
    fn of(leaf: &Certificate<'_>, blocks: &[Block]) -> Self {
        let mut above: Vec<_> = blocks
            .iter()
            .skip(1)
            .filter_map(|block| Certificate::read(&block.der).ok())
            .filter(|certificate| !certificate.is_self_issued())
            .collect();
        let mut validity = Self {
            begin: leaf.not_before,
            end: leaf.not_after,
            ends_with: None,
        };
        let mut issuer = leaf.issuer;
        while let Some(ca) = above
            .iter()
            .filter(|ca| ca.subject == issuer)
            .max_by_key(|ca| ca.not_after)
        {
            if ca.not_after < validity.end {
                validity.end = ca.not_after;
                validity.ends_with = Some(Subject(ca.subject).to_string());
            }
            validity.begin = validity.begin.max(ca.not_before);
            let subject = ca.subject;
            issuer = ca.issuer;
            // Each CA is visited once, so that the search ends even if issuers form a loop.
            above.retain(|ca| ca.subject != subject);
        }
        validity
    }
}
