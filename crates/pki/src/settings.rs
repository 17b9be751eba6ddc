//! Settings for trust and for certificate requests.

use std::time::Duration;

use identity::CertnamePattern;

use crate::csr::{CsrKey, CsrRule};

/// How an expired CRL is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrlExpired {
    /// It stays in use, with an alarm. The default (docs/decisions).
    #[default]
    Warn,
    /// Clients of its issuer are refused.
    Reject,
    /// It stays in use for this time, with an alarm. Afterwards, clients of its issuer are refused.
    Grace(Duration),
}

/// Which certificates of a path the proxy looks up in the CRLs of their issuers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revocation {
    /// All certificates. The default.
    #[default]
    Chain,
    /// Only the client's own certificate. A CA certificate that its issuer has revoked is accepted.
    Leaf,
}

/// `[trust]`, without the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustSettings {
    /// Maximum number of intermediate CA certificates on a verified path, 0 to 6. Default 6.
    pub depth: u8,
    /// How an expired CRL is treated. Default `warn`.
    pub crl_expired: CrlExpired,
    /// Issuers (RFC 2253) whose certificates are accepted without a CRL. `*` means all issuers. Default none.
    pub unchecked: Vec<String>,
    /// Which certificates are looked up in CRLs. Default: the whole chain.
    pub revocation: Revocation,
    /// Issuers with a policy of their own. Default none.
    pub issuers: Vec<IssuerSettings>,
    /// CAs (RFC 2253) whose SHA-1 signatures and small RSA keys are accepted. Default none.
    pub legacy_signatures: Vec<String>,
    /// Maximum number of remembered verified chains, at about 3 kB each. With 0, no chain is remembered. Default 16,384.
    pub chain_cache_max: usize,
}

/// One entry of `[[trust.issuers]]`: the policy for certificates of one issuer. For missing values, those of [`TrustSettings`]
/// apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The issuer (RFC 2253).
    pub name: String,
    /// How its expired CRL is treated.
    pub crl_expired: Option<CrlExpired>,
    /// Whether its certificates are accepted without a CRL.
    pub unchecked: Option<bool>,
    /// Which certificates are looked up in its CRL.
    pub revocation: Option<Revocation>,
}

/// The complete policy for one issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuerPolicy {
    /// How an expired CRL is treated.
    pub crl_expired: CrlExpired,
    /// Whether certificates are accepted without a CRL.
    pub unchecked: bool,
    /// Which certificates are looked up in CRLs.
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

    /// Whether certificates of any issuer are accepted without a CRL. Otherwise, the proxy does not start without a CRL.
    pub fn leaves_unchecked(&self) -> bool {
        let mut own = self.issuers.iter();
        !self.unchecked.is_empty() || own.any(|own| own.unchecked == Some(true))
    }

    /// Names of issuers that the policy mentions.
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

/// How the names of members are used in TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberNames {
    /// Whether the proxy sends the server name (SNI) to the member. The name is verified either way.
    pub indicated: bool,
    /// Whether a certificate without any subjectAltName is valid for its CN.
    pub from_cn: bool,
}

/// `[csr]`: which certificate requests are forwarded to the CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsrSettings {
    /// Whether a request that violates a rule is only logged, and forwarded nevertheless. Default false.
    pub observe: bool,
    /// Accepted kinds of keys. Default: all supported kinds.
    pub keys: Vec<CsrKey>,
    /// Minimum size of an RSA key in bits, at least 2048. Default 2048.
    pub rsa_bits_min: usize,
    /// Exceptions for some names. Default none.
    pub allow: Vec<CsrAllow>,
}

/// `[[csr.allow]]`: rules that are skipped for some names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsrAllow {
    /// The names for which rules are skipped.
    pub certname: Vec<CertnamePattern>,
    /// The rules that are skipped.
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

/// The entry of `unchecked` that stands for every issuer.
pub(crate) const UNCHECKED_ALL: &str = "*";
