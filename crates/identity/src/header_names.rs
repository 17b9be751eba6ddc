//! The default names of the identity headers.

use http::header::HeaderName;

/// Always sent, exactly once, under this name unless the configuration has another.
pub const X_CLIENT_VERIFY: HeaderName = HeaderName::from_static("x-client-verify");
/// Sent beside `SUCCESS` only.
pub const X_CLIENT_DN: HeaderName = HeaderName::from_static("x-client-dn");
/// Sent beside `SUCCESS` only, where endpoint class and pool allow it; never empty.
pub const X_CLIENT_CERT: HeaderName = HeaderName::from_static("x-client-cert");

pub(crate) static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
pub(crate) static CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
pub(crate) static X_FORWARDED_CLIENT_CERT: HeaderName =
    HeaderName::from_static("x-forwarded-client-cert");
pub(crate) const X_SSL_CLIENT_CERT: HeaderName = HeaderName::from_static("x-ssl-client-cert");
