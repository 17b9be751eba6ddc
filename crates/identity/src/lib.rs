//! Client identities, and the headers that carry them to members.
//!
//! The crate is pure: it uses no sockets, files, clock or randomness. A certificate becomes an [`Agent`] only together with
//! [`ChainVerified`], the token for a verified chain. `X-Client-Verify: SUCCESS` therefore cannot be written without a verified
//! chain.

mod agent;
mod certificate_headers;
mod certificate_value;
mod certname;
mod client;
mod extensions;
mod folding;
mod form;
mod header_names;
mod header_rules;
mod headers;
mod identity_name;
mod oid;
mod own_names;
mod refusal;
mod scrub;
pub mod settings;
mod spelling;
mod subject;
mod subject_error;
#[cfg(test)]
mod test_certificate;

pub use agent::{Agent, ChainVerified};
pub use certname::{Certname, CertnameError, CertnamePattern, PatternError};
pub use client::{ClientIdentity, Verdict};
pub use extensions::{
    ExtensionValue, PuppetExtensions, ValuePattern, authorization_extensions, extension_name,
    extension_names, extension_oid, is_authorization_oid, is_extension_oid,
};
pub use form::{CertFormat, DnFormat, DnFormats, HeaderForm, HeaderSet};
pub use header_names::{X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY};
pub use header_rules::{CoveredName, HeaderPattern, HeaderRules};
pub use headers::IdentityHeaders;
pub use identity_name::{HeaderRole, IdentityName, NameError};
pub use oid::dotted_oid;
pub use own_names::OwnNames;
pub use refusal::{Reason, Refusal};
pub use scrub::{ScrubReport, is_removed};
pub use settings::{IdentitySettings, SubjectRule};
pub use subject::Subject;
pub use subject_error::SubjectError;
