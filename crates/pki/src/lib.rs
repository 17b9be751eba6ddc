//! Trust store, verdicts, credentials, and the rustls configurations made of them.
//!
//! It takes bytes, never paths, and time as an argument; the rustls verifiers use the time rustls gives them, and the
//! keys of tickets, whom nobody gives one, a clock that only runs.
//! It knows nothing of HTTP or TOML.

mod bundle;
mod ca_answer;
mod cause;
mod certificate;
mod credential;
mod crl;
mod csr;
mod deny;
mod der;
mod email_constraint;
mod fault;
mod fetched;
mod first_step;
mod judge;
mod kept;
mod key;
mod legacy;
mod lookup;
mod member;
mod one_block;
mod path;
mod pem;
mod persistence_key;
mod problem;
mod remembered;
mod renewed;
mod sessions;
pub mod settings;
mod shown;
mod signature;
mod store;
mod tls;
mod verifier;

pub use bundle::Fingerprint;
pub use ca_answer::{NotOurCas, holds_lists_alone};
pub use cause::{Peer, cause};
pub use credential::Credential;
pub use csr::{CsrKey, CsrPolicy, CsrRefusal, CsrRule};
pub use deny::{Block, Blocked, BlockedError, DenyList, SerialNumber, fingerprint_of};
pub use fetched::{Examined, FetchedCrl, Finding, NotSetAside, SetAside};
pub use judge::{Judgement, Recalled, VerifiedChain};
pub use kept::{CA_SEEN_WITHIN, CertificatePurpose};
pub use lookup::{CertificateFacts, CrlEntry, Listing, entry_in, entry_in_list, facts_of};
pub use member::MemberError;
pub use pem::{Named, holds_certificate, holds_crl, holds_key};
pub use persistence_key::PersistenceKey;
pub use problem::PkiProblem;
pub use remembered::ChainMemory;
pub use renewed::{NotRenewed, check_renewed};
pub use sessions::{ServerTls, TicketKeys};
pub use settings::{
    CrlExpired, CsrAllow, CsrSettings, IssuerSettings, MemberNames, Revocation, TrustSettings,
};
pub use shown::ShownCredentials;
pub use store::{CaStatus, CrlStatus, Lockout, Material, TrustAlarm, TrustStatus, TrustStore};
pub use tls::{MemberTlsConfig, Protocols, client_config, server_config};
pub use verifier::{
    ClientCert, ClientVerifier, ListenerPolicy, OnInvalid, PRESENTED_BYTES_MAX,
    PRESENTED_CERTIFICATES_MAX, handshake_reason, take_refused_name,
};

/// A Name, the whole DER element, in RFC 2253.
pub(crate) fn subject_text(name: &[u8]) -> String {
    identity::Subject::name_text(name)
}
