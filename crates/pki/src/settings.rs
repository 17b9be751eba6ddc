//! What a configuration says about trust, and about requests for certificates.

use std::time::Duration;

use identity::CertnamePattern;

use crate::csr::{CsrKey, CsrRule};

/// What becomes of a CRL past its next update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrlExpired {
    /// It is judged by, with an alarm. The default (docs/decisions).
    #[default]
    Warn,
    /// Clients of its issuer are refused.
    Reject,
    /// It is judged by, with an alarm, for so long; from then on clients of its issuer are refused.
    Grace(Duration),
}

/// Which certificates of a path are looked up in the CRL of whoever issued them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revocation {
    /// All of them. The default.
    #[default]
    Chain,
    /// The client's own alone: a CA certificate that the issuer has revoked goes on.
    Leaf,
}

/// `[trust]`, without the files it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustSettings {
    /// Most intermediate CA certificates on a verified path, 0 to 6. Default 6.
    pub depth: u8,
    /// What becomes of an expired CRL. Default `warn`.
    pub crl_expired: CrlExpired,
    /// Issuers (RFC 2253) whose certificates are accepted without a CRL; `*` is all of them. Default none.
    pub unchecked: Vec<String>,
    /// Which certificates are looked up. Default the whole chain.
    pub revocation: Revocation,
    /// Issuers for whom another policy holds. Default none.
    pub issuers: Vec<IssuerSettings>,
    /// CAs (RFC 2253) whose SHA-1 signatures and small RSA keys are admitted. Default none.
    pub legacy_signatures: Vec<String>,
    /// Most verified chains that are remembered, at about 3 kB each. Default 16,384; 0 remembers none.
    pub chain_cache_max: usize,
}

/// One of `[[trust.issuers]]`: the policy for what one issuer has signed. What it leaves out is as in [`TrustSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The issuer (RFC 2253).
    pub name: String,
    /// What becomes of its CRL when that is expired.
    pub crl_expired: Option<CrlExpired>,
    /// Whether its certificates are accepted without a CRL.
    pub unchecked: Option<bool>,
    /// Which certificates are looked up in its CRL.
    pub revocation: Option<Revocation>,
}

/// The policy for one issuer, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuerPolicy {
    /// What becomes of an expired CRL.
    pub crl_expired: CrlExpired,
    /// Whether none is needed.
    pub unchecked: bool,
    /// Which certificates are looked up.
    pub revocation: Revocation,
}

impl TrustSettings {
    /// The policy for an issuer (RFC 2253).
    pub fn policy(&self, issuer: &str) -> IssuerPolicy {
        let own = self.issuers.iter().find(|own| own.name == issuer);
        let named = || {
            let mut entries = self.unchecked.iter();
            entries.any(|entry| entry == UNCHECKED_ALL || entry == issuer)
        };
        IssuerPolicy {
            crl_expired: own
                .and_then(|own| own.crl_expired)
                .unwrap_or(self.crl_expired),
            unchecked: own.and_then(|own| own.unchecked).unwrap_or_else(named),
            revocation: own
                .and_then(|own| own.revocation)
                .unwrap_or(self.revocation),
        }
    }

    /// Whether anybody's certificates are accepted without a CRL: without one there is no start otherwise.
    pub fn leaves_unchecked(&self) -> bool {
        let mut own = self.issuers.iter();
        !self.unchecked.is_empty() || own.any(|own| own.unchecked == Some(true))
    }

    /// Names of issuers that the policy is about.
    pub(crate) fn named_issuers(&self) -> impl Iterator<Item = &str> {
        let unchecked = self
            .unchecked
            .iter()
            .filter(|entry| *entry != UNCHECKED_ALL);
        unchecked
            .chain(self.issuers.iter().map(|own| &own.name))
            .map(String::as_str)
    }
}

impl Default for TrustSettings {
    fn default() -> Self {
        Self {
            depth: 6,
            crl_expired: CrlExpired::Warn,
            unchecked: Vec::new(),
            revocation: Revocation::Chain,
            issuers: Vec::new(),
            legacy_signatures: Vec::new(),
            chain_cache_max: 16_384,
        }
    }
}

/// What the names of members are told by, and told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberNames {
    /// Whether a member is told which name is wanted of it before it shows its certificate; it is verified either way.
    pub indicated: bool,
    /// Whether a certificate without any subjectAltName is good for its CN.
    pub from_cn: bool,
}

/// `[csr]`: which certificate requests are passed on to the CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsrSettings {
    /// Whether what breaks a rule is passed on all the same, and only told of. Default false.
    pub observe: bool,
    /// Kinds of keys. Default all that can be checked.
    pub keys: Vec<CsrKey>,
    /// Least bits of an RSA key, at least 2048. Default 2048.
    pub rsa_bits_min: usize,
    /// Rules that are lifted for some names. Default none.
    pub allow: Vec<CsrAllow>,
}

/// `[[csr.allow]]`: rules that do not hold for some names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsrAllow {
    /// Whom for.
    pub certname: Vec<CertnamePattern>,
    /// Which.
    pub skip_rules: Vec<CsrRule>,
}

impl Default for CsrSettings {
    fn default() -> Self {
        Self {
            observe: false,
            keys: CsrKey::ALL.to_vec(),
            rsa_bits_min: 2048,
            allow: Vec::new(),
        }
    }
}

/// The entry of `unchecked` that names every issuer.
pub(crate) const UNCHECKED_ALL: &str = "*";
