//! Paths of requests that many tests send.

/// The catalog of web01.
pub(crate) const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// The report of web01.
pub(crate) const REPORT: &str = "/puppet/v3/report/web01?environment=production";
/// A file of a module.
pub(crate) const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";
/// The certificate of the CA, which needs no client certificate.
pub(crate) const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";
