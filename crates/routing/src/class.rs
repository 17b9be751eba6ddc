//! The classes of endpoints.

use std::fmt;
use std::str::FromStr;

/// The class of an endpoint. It decides which clients may use the endpoint, on every route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Certificates, the CRL and certificate requests: open to anyone.
    Enrolment,
    /// `certificate_renewal`.
    Renewal,
    /// All other endpoints of the CA.
    CaAdministration,
    /// Catalog, node, facts and report of one certname.
    OwnDocuments,
    /// Files, their metadata, environments and tasks.
    Files,
    /// `file_bucket_file`.
    Filebucket,
    /// Compilation for services.
    Services,
    /// Flushing caches and JRubies of a Puppet Server. Only a rule that lists complete certnames opens it.
    ServerAdministration,
    /// `/status/v1/simple`, which the proxy answers itself.
    Status,
    /// Never forwarded.
    Never,
    /// Not an endpoint of a Puppet server.
    Unknown,
}

/// The name of a class that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown endpoint class {0:?}")]
pub struct UnknownClass(pub String);

impl Class {
    /// Every class, in the table's order.
    pub const ALL: [Self; 11] = [
        Self::Enrolment,
        Self::Renewal,
        Self::CaAdministration,
        Self::OwnDocuments,
        Self::Files,
        Self::Filebucket,
        Self::Services,
        Self::ServerAdministration,
        Self::Status,
        Self::Never,
        Self::Unknown,
    ];

    /// The name in configuration, records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enrolment => "enrolment",
            Self::Renewal => "renewal",
            Self::CaAdministration => "ca-administration",
            Self::OwnDocuments => "own-documents",
            Self::Files => "files",
            Self::Filebucket => "filebucket",
            Self::Services => "services",
            Self::ServerAdministration => "server-administration",
            Self::Status => "status",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the endpoint belongs to the CA. At the CA, only a renewal carries `X-Client-Cert`, because a CA that trusts
    /// headers would sign any certificate that the header contains (THREATS T7).
    pub const fn is_ca(self) -> bool {
        matches!(
            self,
            Self::Enrolment | Self::Renewal | Self::CaAdministration
        )
    }

    /// Whether a rule of `[[access]]` that names the class opens it to the clients that the rule matches.
    pub const fn is_opened_by_rule(self) -> bool {
        matches!(
            self,
            Self::OwnDocuments
                | Self::Services
                | Self::CaAdministration
                | Self::ServerAdministration
        )
    }

    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_read_back_from_its_name() {
        for class in Class::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
        }
        assert!("Files".parse::<Class>().is_err());
    }
}
