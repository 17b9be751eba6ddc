//! Decides whether a certificate request may be forwarded to the CA. Any client may send one, so the proxy checks it before it
//! acts on it.
//!
//! The CA also checks forwarded requests, and signs them manually or automatically. The proxy refuses requests that a CA that
//! signs automatically must never get: requests for rights on the servers or for names of other hosts, and requests with weak
//! keys.

mod request;

use std::fmt;

use identity::{CertnamePattern, Subject};
use rustls_pki_types::SubjectPublicKeyInfoDer;

use crate::key::KeyKind;
use crate::settings::CsrSettings;
use crate::signature::{self, SignatureFault};
use crate::strict_pem;
use request::{Altname, CaOnlyRequest, Request};

/// The active rules of `[csr]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsrPolicy {
    settings: CsrSettings,
}

/// A rule that a certificate request can violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CsrRule {
    /// The body is one PEM block with a request in DER, and no part of it is ambiguous.
    Unreadable,
    /// The request's only CN is the name in the URL.
    Name,
    /// The key has an accepted kind and size.
    Key,
    /// The request is signed with its own key.
    Signature,
    /// The request does not ask for rights on the servers.
    Authorization,
    /// The request does not ask for another name.
    Altnames,
    /// The request does not ask for other extensions that an agent does not need.
    Extensions,
}

/// Why a certificate request is not forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsrRefusal {
    /// The rule that the request violates.
    pub rule: CsrRule,
    /// The offending part, in printable ASCII.
    pub what: String,
}

impl CsrPolicy {
    /// A policy with these settings.
    pub fn new(settings: CsrSettings) -> Self {
        Self { settings }
    }

    /// Whether requests that violate a rule are only logged, and forwarded nevertheless.
    pub fn observes(&self) -> bool {
        self.settings.observe
    }

    /// Checks the body of the request `PUT certificate_request/CERTNAME`.
    ///
    /// # Errors
    /// The first violated rule that is not skipped for this name.
    pub fn check(&self, certname: &str, body: &[u8]) -> Result<(), CsrRefusal> {
        let der = strict_pem::only_block(body, "CERTIFICATE REQUEST")
            .map_err(|what| CsrRefusal::new(CsrRule::Unreadable, what))?;
        let request = Request::read(&der)
            .map_err(|error| CsrRefusal::new(CsrRule::Unreadable, error.to_string()))?;
        check_name(&request, certname)?;
        for rule in CsrRule::LIFTABLE {
            if self.lifts(rule, certname) {
                continue;
            }
            match rule {
                CsrRule::Key => self.check_key(&request)?,
                CsrRule::Signature => check_signature(&request)?,
                CsrRule::Authorization => check_authorization(&request)?,
                CsrRule::Altnames => check_altnames(&request, certname)?,
                CsrRule::Extensions => check_extensions(&request)?,
                CsrRule::Unreadable | CsrRule::Name => {}
            }
        }
        Ok(())
    }

    fn lifts(&self, rule: CsrRule, certname: &str) -> bool {
        let named =
            |patterns: &[CertnamePattern]| patterns.iter().any(|pattern| pattern.matches(certname));
        let mut allow = self.settings.allow.iter();
        allow.any(|allow| allow.skip_rules.contains(&rule) && named(&allow.certname))
    }

    fn check_key(&self, request: &Request<'_>) -> Result<(), CsrRefusal> {
        let kind = KeyKind::of(request.spki);
        let refused = |what| Err(CsrRefusal::new(CsrRule::Key, what));
        let Some(word) = CsrKey::of(kind) else {
            return refused(format!(
                "its key ({kind}) is neither RSA, nor ECDSA on P-256, P-384 or P-521, nor Ed25519"
            ));
        };
        if !self.settings.keys.contains(&word) {
            return refused(format!("its type of key ({kind}) is not accepted"));
        }
        let (min, max) = (self.settings.rsa_bits_min, RSA_BITS_MAX);
        match kind {
            KeyKind::Rsa(bits) if !(min..=max).contains(&bits) => refused(format!(
                "its RSA key has {bits} bits, and only {min} to {max} bits are accepted"
            )),
            _ => Ok(()),
        }
    }
}

impl CsrRule {
    /// The rules that `[[csr.allow]]` can skip, in the order of the checks. The key is checked before its signature.
    pub const LIFTABLE: [Self; 5] = [
        Self::Key,
        Self::Signature,
        Self::Authorization,
        Self::Altnames,
        Self::Extensions,
    ];

    /// The word in the configuration and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Name => "name",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Authorization => "authorization",
            Self::Altnames => "altnames",
            Self::Extensions => "extensions",
        }
    }

    /// The reason in records.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreadable => "csr-unreadable",
            Self::Name => "csr-name",
            Self::Key => "csr-key",
            Self::Signature => "csr-signature",
            Self::Authorization => "csr-authorization",
            Self::Altnames => "csr-altnames",
            Self::Extensions => "csr-extensions",
        }
    }

    /// What to do on the agent.
    fn remedy(self) -> &'static str {
        match self {
            Self::Unreadable | Self::Name | Self::Signature => {
                "Run \"puppet ssl clean\" on the agent, then \"puppet agent -t\"."
            }
            Self::Key => {
                "Correct key_type and keylength in the agent's puppet.conf, then run \"puppet ssl clean\" on the agent."
            }
            Self::Authorization | Self::Extensions => {
                "Remove it from the agent's csr_attributes.yaml, then run \"puppet ssl clean\" on the agent."
            }
            Self::Altnames => {
                "Remove the name from dns_alt_names in the agent's puppet.conf, then run \"puppet ssl clean\" on the agent."
            }
        }
    }
}

impl CsrRefusal {
    fn new(rule: CsrRule, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for CsrRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, remedy) = (&self.what, self.rule.remedy());
        write!(
            f,
            "The proxy did not forward this certificate request to the CA: {what}. {remedy}"
        )?;
        if CsrRule::LIFTABLE.contains(&self.rule) {
            f.write_str(" If the agent needs it, contact the operator of this proxy.")?;
        }
        Ok(())
    }
}

impl std::error::Error for CsrRefusal {}

/// A kind of key that `[csr] keys` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrKey {
    /// RSA, of `rsa_bits_min` to 8192 bits.
    Rsa,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// ECDSA on P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
}

impl CsrKey {
    /// All supported kinds.
    pub const ALL: [Self; 5] = [
        Self::Rsa,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::Ed25519,
    ];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::EcdsaP521 => "ecdsa-p521",
            Self::Ed25519 => "ed25519",
        }
    }

    fn of(kind: KeyKind) -> Option<Self> {
        match kind {
            KeyKind::Rsa(_) => Some(Self::Rsa),
            KeyKind::Ecdsa("P-256") => Some(Self::EcdsaP256),
            KeyKind::Ecdsa("P-384") => Some(Self::EcdsaP384),
            KeyKind::Ecdsa("P-521") => Some(Self::EcdsaP521),
            KeyKind::Ed25519 => Some(Self::Ed25519),
            KeyKind::Ecdsa(_) | KeyKind::Other => None,
        }
    }
}

fn check_name(request: &Request<'_>, certname: &str) -> Result<(), CsrRefusal> {
    let refused = |what| Err(CsrRefusal::new(CsrRule::Name, what));
    let shown = certname.escape_default();
    match Subject::only_cn(request.subject) {
        Some(cn) if cn == certname => Ok(()),
        Some(cn) => refused(format!(
            "its name is {}, but it was sent for {shown}",
            cn.escape_default()
        )),
        None => refused(format!(
            "its subject ({}) does not have exactly one CN that all servers read in the same way; it was sent for {shown}",
            Subject::name_text(request.subject)
        )),
    }
}

fn check_signature(request: &Request<'_>) -> Result<(), CsrRefusal> {
    let key = SubjectPublicKeyInfoDer::from(request.spki);
    let what = match signature::check_signed(request.signed, &key) {
        Ok(()) => return Ok(()),
        Err(SignatureFault::Wrong) => "it was not signed with its own key",
        Err(SignatureFault::Unsupported) => {
            "its signature algorithm is not supported (SHA-1 and MD5 are not)"
        }
    };
    Err(CsrRefusal::new(CsrRule::Signature, what))
}

fn check_authorization(request: &Request<'_>) -> Result<(), CsrRefusal> {
    let Some(oid) = &request.authorization else {
        return Ok(());
    };
    let name = identity::extension_name(oid).filter(|name| name != oid);
    let what = match name {
        Some(name) => format!("it requests {name} ({oid}), which grants rights on the servers"),
        None => format!("it requests {oid}, which may grant rights on the servers"),
    };
    Err(CsrRefusal::new(CsrRule::Authorization, what))
}

/// Accepts only the certname itself, because an agent with `dns_alt_names` also requests it.
fn check_altnames(request: &Request<'_>, certname: &str) -> Result<(), CsrRefusal> {
    let own =
        |name: &&Altname<'_>| matches!(name, Altname::Dns(dns) if *dns == certname.as_bytes());
    let Some(other) = request.altnames.iter().find(|name| !own(name)) else {
        return Ok(());
    };
    let what = match other {
        Altname::Dns(dns) => format!(
            "it requests the name {}, which is not its certname",
            dns.escape_ascii()
        ),
        Altname::Other(tag) => format!(
            "it requests a name that is not a host name (subjectAltName of type {})",
            tag & 0x1f
        ),
    };
    Err(CsrRefusal::new(CsrRule::Altnames, what))
}

fn check_extensions(request: &Request<'_>) -> Result<(), CsrRefusal> {
    let Some(asked) = request.others.first() else {
        return Ok(());
    };
    let what = match asked {
        CaOnlyRequest::CaCertificate => {
            "it requests a CA certificate (basicConstraints)".to_owned()
        }
        CaOnlyRequest::SigningUsage => {
            "it requests the right to sign certificates or CRLs (keyUsage)".to_owned()
        }
        CaOnlyRequest::CaExtension(oid) => format!("it requests {oid}, which only the CA may set"),
        CaOnlyRequest::CriticalExtension(oid) => {
            format!("it requests the critical extension {oid}")
        }
    };
    Err(CsrRefusal::new(CsrRule::Extensions, what))
}

/// The maximum size of a key whose signatures aws-lc verifies.
const RSA_BITS_MAX: usize = 8192;
