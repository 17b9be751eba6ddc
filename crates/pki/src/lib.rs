//! Trust store, verdicts, credentials, and the rustls configurations made of them.
//!
//! It takes bytes, never paths, and time as an argument; only the rustls verifiers use the time rustls gives them.
//! It knows nothing of HTTP or TOML.

mod bundle;
mod certificate;
mod crl;
mod der;
mod judge;
mod pem;
mod problem;
pub mod settings;
mod signature;
mod store;

pub use bundle::Fingerprint;
pub use judge::{Judgement, VerifiedChain};
pub use pem::{Named, holds_crl};
pub use problem::PkiProblem;
pub use settings::{CrlExpired, TrustSettings};
pub use store::{CaStatus, CrlStatus, Material, TrustStatus, TrustStore};

/// A Name, the whole DER element, in RFC 2253.
pub(crate) fn subject_text(name: &[u8]) -> String {
    identity::Subject::name_text(name)
}
