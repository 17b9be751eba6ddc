//! Settings of `[identity]` for every client: which subjects are accepted.

use crate::DnFormats;

/// Which subjects of verified certificates are accepted as an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectRule {
    /// Exactly one RDN with one CN: lower case, the characters that the Puppet CA allows, at most 255 bytes.
    #[default]
    Puppet,
    /// Exactly one single-valued CN. Other RDNs and upper case are allowed (external CAs).
    SingleCn,
}

/// How subjects are checked: the part of `[identity]` that applies to every client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentitySettings {
    /// Which subjects are accepted. Default `puppet`.
    pub subject: SubjectRule,
    /// Subject formats that the headers of some pool use. A client whose subject is ambiguous in one of them is
    /// refused. Default RFC 2253 alone.
    pub dn_formats: DnFormats,
}
