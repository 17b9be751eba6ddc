//! The names that a configuration gives to identity headers, for scrubbing.

use http::header::HeaderName;

use crate::folding::{same_for_readers, seems_identity, without_cgi_prefix};
use crate::form::HeaderForm;
use crate::header_rules::{CoveredName, HeaderPattern};
use crate::identity_name::IdentityName;

/// The names that the pools of a configuration give to identity headers. Every route removes all of these headers from
/// requests, because only the path decides which pool a request reaches. Also the headers that a route or pool keeps although
/// other routes remove them.
#[derive(Clone, Debug, Default)]
pub struct OwnNames {
    /// Names that scrubbing does not recognize without the configuration.
    unknown: Vec<IdentityName>,
    /// All names except the three of the default form.
    renamed: Vec<IdentityName>,
    /// Headers that some route or pool keeps.
    kept: Vec<HeaderPattern>,
}

impl OwnNames {
    /// Collects the names of all these forms.
    pub fn of<'f>(forms: impl IntoIterator<Item = &'f HeaderForm>) -> Self {
        let mut own = Self::default();
        let usual = HeaderForm::default();
        let names = |form: &HeaderForm| {
            let puppets: Vec<_> = form.names().map(|(name, _)| name.clone()).collect();
            puppets
                .into_iter()
                .chain(form.other_names().collect::<Vec<_>>())
        };
        for name in forms.into_iter().flat_map(names) {
            let same = |other: &IdentityName| other.header() == name.header();
            if usual.names().any(|(usual, _)| same(usual)) || own.renamed.iter().any(same) {
                continue;
            }
            if !seems_identity(name.as_str()) {
                own.unknown.push(name.clone());
            }
            own.renamed.push(name);
        }
        own
    }

    /// Adds the headers that some route or pool keeps.
    #[must_use]
    pub fn keeping<'p>(mut self, kept: impl IntoIterator<Item = &'p HeaderPattern>) -> Self {
        self.kept.extend(kept.into_iter().cloned());
        self
    }

    /// The first name that only the proxy may write and that `pattern` matches in some spelling. These names are those of
    /// identity headers in any form, and the forwarding fields.
    pub fn written_by_proxy(&self, pattern: &HeaderPattern) -> Option<CoveredName<'_>> {
        let renamed = self.renamed.iter().map(IdentityName::as_str);
        pattern.first_covered(ALWAYS_WRITTEN.iter().copied().chain(renamed))
    }

    /// Whether some route or pool keeps the header with this name, and the proxy never writes it.
    pub fn may_keep(&self, name: &str) -> bool {
        let bare = without_cgi_prefix(name.as_bytes());
        let same = |own: &str| same_for_readers(bare, own.as_bytes());
        let renamed = self.renamed.iter().map(IdentityName::as_str);
        self.kept.iter().any(|pattern| pattern.is(name))
            && !ALWAYS_WRITTEN.iter().copied().chain(renamed).any(same)
    }

    /// Headers that must be removed from responses, in addition to the three of the default form.
    pub fn renamed(&self) -> impl Iterator<Item = &HeaderName> {
        self.renamed.iter().map(IdentityName::header)
    }

    /// Whether some server reads `name` as one of these names. `name` must not have the CGI prefix.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let same = |own: &IdentityName| same_for_readers(name, own.as_str().as_bytes());
        self.unknown.iter().any(same)
    }
}

/// Headers that the proxy writes in some form of the identity headers, and forwarding fields.
const ALWAYS_WRITTEN: &[&str] = &[
    "x-client-verify",
    "x-client-dn",
    "x-client-cert",
    "x-ssl-client-cert",
    "client-cert",
    "client-cert-chain",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

#[cfg(test)]
mod tests;
