//! The default names of the identity headers.

use http::header::HeaderName;

/// The header with the verdict. It is sent exactly once with every request, unless the configuration renames it.
pub const X_CLIENT_VERIFY: HeaderName = HeaderName::from_static("x-client-verify");
/// The header with the subject. It is sent only with `SUCCESS`.
pub const X_CLIENT_DN: HeaderName = HeaderName::from_static("x-client-dn");
/// The header with the certificate. It is sent only with `SUCCESS`, where endpoint class and pool allow it, and is
/// never empty.
pub const X_CLIENT_CERT: HeaderName = HeaderName::from_static("x-client-cert");

pub(crate) static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
pub(crate) static CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
pub(crate) static X_FORWARDED_CLIENT_CERT: HeaderName =
    HeaderName::from_static("x-forwarded-client-cert");
pub(crate) const X_SSL_CLIENT_CERT: HeaderName = HeaderName::from_static("x-ssl-client-cert");
