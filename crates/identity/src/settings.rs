//! How a client's subject becomes an identity.

use crate::DnFormats;

/// Which subjects of verified certificates are accepted as an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectRule {
    /// Exactly one RDN with one CN in the Puppet CA's alphabet, lower case, at most 255 bytes.
    #[default]
    Puppet,
    /// Exactly one single-valued CN; other RDNs and upper case may stand beside it (external CAs).
    SingleCn,
}

/// How subjects are judged: the part of `[identity]` that concerns every client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentitySettings {
    /// Which subjects are accepted. Default `puppet`.
    pub subject: SubjectRule,
    /// Formats that some pool's servers are told the subject in: who cannot be told in one of them without ambiguity
    /// is refused. Default RFC 2253 alone.
    pub dn_formats: DnFormats,
}
