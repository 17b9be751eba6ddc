//! Who a client is, and how that is told upstream.
//!
//! Pure: no sockets, files, clock or randomness. A certificate becomes an [`Agent`] only together with
//! [`ChainVerified`], the token of a verified chain, so `X-Client-Verify: SUCCESS` cannot be written without one.

mod agent;
mod certificate_value;
mod certname;
mod client;
mod extensions;
mod form;
mod headers;
mod oid;
mod other_headers;
mod refusal;
mod scrub;
pub mod settings;
mod spelling;
mod subject;
#[cfg(test)]
mod test_certificate;

pub use agent::{Agent, ChainVerified, SubjectError};
pub use certname::{Certname, CertnameError, CertnamePattern, PatternError};
pub use client::{ClientIdentity, Verdict};
pub use extensions::{
    ExtensionValue, PuppetExtensions, ValuePattern, authorization_extensions, extension_name,
    extension_names, extension_oid, is_authorization_oid, is_extension_oid,
};
pub use form::{
    CertFormat, DnFormat, DnFormats, HeaderForm, HeaderRole, HeaderSet, IdentityName, NameError,
    OwnNames,
};
pub use headers::{IdentityHeaders, X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY};
pub use oid::dotted_oid;
pub use refusal::{Reason, Refusal};
pub use scrub::{ScrubReport, is_removed, scrub};
pub use settings::{IdentitySettings, SubjectRule};
pub use subject::Subject;
