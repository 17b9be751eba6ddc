//! How a client's subject becomes an identity.

/// Which subjects of verified certificates are accepted as an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectRule {
    /// Exactly one RDN with one CN in the Puppet CA's alphabet, lower case, at most 255 bytes.
    #[default]
    Puppet,
    /// Exactly one single-valued CN; other RDNs and upper case may stand beside it (external CAs).
    SingleCn,
}

/// How the subject is spelled in `X-Client-DN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnFormat {
    /// RFC 2253: the one form that every Puppet server accepts.
    #[default]
    Rfc2253,
}

/// `[identity]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which subjects are accepted. Default `puppet`.
    pub subject: SubjectRule,
    /// The form of `X-Client-DN`. Default `rfc2253`.
    pub dn_format: DnFormat,
}
