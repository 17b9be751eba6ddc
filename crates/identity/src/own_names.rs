//! The names that a configuration gives to identity headers, for scrubbing.

use http::header::HeaderName;

use crate::folding::{same_for_readers, seems_identity};
use crate::form::HeaderForm;
use crate::identity_name::IdentityName;

/// The names that the pools of a configuration give to identity headers. Every route removes all of them from requests,
/// because only the path decides which pool a request reaches.
#[derive(Clone, Debug, Default)]
pub struct OwnNames {
    /// Names that `scrub` does not know without the configuration.
    unknown: Vec<IdentityName>,
    /// All names except the three of the default form.
    renamed: Vec<IdentityName>,
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

    /// Headers to remove from responses, in addition to the three of the default form.
    pub fn renamed(&self) -> impl Iterator<Item = &HeaderName> {
        self.renamed.iter().map(IdentityName::header)
    }

    /// Whether some server reads `name`, which has no CGI prefix, as one of these names.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let same = |own: &IdentityName| same_for_readers(name, own.as_str().as_bytes());
        self.unknown.iter().any(same)
    }
}

#[cfg(test)]
mod tests;
