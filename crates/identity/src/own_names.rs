//! The identity headers' names of a configuration, for scrubbing.

use http::header::HeaderName;

use crate::folding::{same_for_readers, seems_identity};
use crate::form::HeaderForm;
use crate::identity_name::IdentityName;

/// The names that a configuration gives to our headers, of all its pools: a client may use none of them on any route,
/// since a request that reaches one pool is not kept from the next by anything else than its path.
#[derive(Clone, Debug, Default)]
pub struct OwnNames {
    /// Those that `scrub` does not know by itself.
    unknown: Vec<IdentityName>,
    /// All but the three of the default form.
    renamed: Vec<IdentityName>,
}

impl OwnNames {
    /// The names of all these forms.
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

    /// Headers of a response that are nobody's business downstream, beside the three of the default form.
    pub fn renamed(&self) -> impl Iterator<Item = &HeaderName> {
        self.renamed.iter().map(IdentityName::header)
    }

    /// Whether some reader takes `name`, without a prefix of CGI's, for one of these.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let same = |own: &IdentityName| same_for_readers(name, own.as_str().as_bytes());
        self.unknown.iter().any(same)
    }
}

#[cfg(test)]
mod tests;
