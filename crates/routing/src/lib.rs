//! Where a request goes and who may ask: path rule, endpoint classes, routes, access.
pub mod settings;

/// The class of an endpoint: decides who may ask, on every route (ROUTING §E).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Certificates, the CRL and certificate requests: open to anyone.
    Enrolment,
    /// `certificate_renewal`.
    Renewal,
    /// Everything else of the CA.
    CaAdministration,
    /// Catalog, node, facts and report of one certname.
    OwnDocuments,
    /// Files, metadata, environments, tasks.
    Files,
    /// `file_bucket_file`.
    Filebucket,
    /// Compilation for services.
    Services,
    /// `/status/v1/simple`: answered here.
    Status,
    /// Never passed on.
    Never,
    /// No endpoint of a Puppet server.
    Unknown,
}
