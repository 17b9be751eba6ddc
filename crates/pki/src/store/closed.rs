//! A trust store without a CA, for a proxy that verifies no client.

use std::sync::Arc;

use super::TrustStore;
use crate::anchors::Anchors;
use crate::bundle::Bundle;
use crate::crl_sorting::CrlSorter;
use crate::legacy_signatures::LegacySignatures;
use crate::settings::TrustSettings;

impl TrustStore {
    /// A store that trusts no CA and therefore verifies no certificate. The deny list and the generation continue those of
    /// `previous`.
    #[must_use]
    pub fn without_cas(
        settings: &TrustSettings,
        identity: &identity::IdentitySettings,
        previous: Option<&Self>,
    ) -> Self {
        let bundle = Bundle::empty();
        let legacy = Arc::new(LegacySignatures::of(&bundle, &settings.legacy_signatures));
        let anchors = Anchors { bundle, legacy };
        Self::assemble(CrlSorter::new(&anchors, None), settings, identity, previous)
    }

    /// Whether the store trusts no CA.
    pub fn has_no_cas(&self) -> bool {
        self.anchors.bundle.cas.is_empty()
    }
}
