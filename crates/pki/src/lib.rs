//! Trust store, verdicts, credentials, and the rustls configurations that use them.
//!
//! The crate gets bytes instead of paths, and time as an argument. The rustls verifiers use the time that rustls passes. rustls
//! passes no time to the keys of session tickets, so these use a monotonic clock.
//! The crate does not depend on HTTP or TOML.

mod anchors;
mod bundle;
mod ca_documents;
mod cause;
mod certificate;
mod chain;
mod chain_memory;
mod client_verifier;
mod credential;
mod crl;
mod crl_sorting;
mod csr;
mod deny;
mod der;
mod earlier_revocations;
mod fetched;
mod fingerprint;
mod fleet_keys;
mod indexed_crl;
mod issuer_crls;
mod key;
mod last_seen;
mod legacy_signatures;
mod listener_credentials;
mod lookup;
mod member_verifier;
mod name_constraints;
mod path;
mod path_end;
mod path_start;
mod pem;
mod persistence_key;
mod policies;
mod problem;
mod refusal;
mod renewal;
mod required_cas;
mod retained_serials;
mod revocation;
mod sessions;
mod set_aside;
pub mod settings;
mod signature;
mod store;
mod strict_pem;
mod tls;
mod trust_memory;
mod verdict;
mod webpki_fault;

pub use ca_documents::{CaCertificatesError, holds_only_crls};
pub use cause::{Peer, cause};
pub use chain::VerifiedChain;
pub use chain_memory::ChainMemoryStats;
pub use client_verifier::{
    ClientCert, ClientVerifier, ListenerPolicy, OnInvalid, PRESENTED_BYTES_MAX,
    PRESENTED_CERTIFICATES_MAX, handshake_reason, take_refused_name,
};
pub use credential::Credential;
pub use csr::{CsrKey, CsrPolicy, CsrRefusal, CsrRule};
pub use deny::{Block, BlockTarget, BlockTargetError, DenyList, SerialNumber};
pub use fetched::{CrlComparison, ExaminedCrls, FetchedCrl, StoredRevocations};
pub use fingerprint::{Fingerprint, fingerprint_of};
pub use fleet_keys::{FleetKeys, FleetKeysError};
pub use listener_credentials::ListenerCredentials;
pub use lookup::{
    CertificateFacts, CrlEntry, CrlListing, crl_entry_in_der, crl_entry_in_pem, facts_of,
};
pub use member_verifier::MemberError;
pub use pem::{Named, holds_certificate, holds_crl, holds_key};
pub use persistence_key::PersistenceKey;
pub use problem::PkiProblem;
pub use renewal::{
    OwnRenewalError, RenewedCertificateError, check_own_renewal, check_renewed_certificate,
};
pub use required_cas::{CA_SEEN_WITHIN, CertificatePurpose};
pub use retained_serials::{RetainedSerials, RetainedSerialsError};
pub use sessions::{ServerTls, TicketKeys};
pub use set_aside::{SetAsideError, SetAsideRule};
pub use settings::{
    CrlExpired, CsrAllow, CsrSettings, IssuerSettings, MemberNames, Revocation, TrustSettings,
};
pub use store::{
    ActiveCrlStatus, DroppedRevocations, EmptyCrl, Lockout, NewestCrl, TrustAlarm, TrustMaterial,
    TrustStore, TrustStoreStatus, TrustedCaStatus, about_ca,
};
pub use tls::{MemberTlsConfig, Protocols, client_config, grpc_client_config, server_config};
pub use verdict::{ChainVerification, RecalledVerdict};

/// A Name, the whole DER element, in RFC 2253.
pub(crate) fn subject_text(name: &[u8]) -> String {
    identity::Subject::name_text(name)
}
