//! Trust while the process runs: blocks, CRLs that are fetched or accepted, and copies of the CA's documents.

pub(crate) mod accept_crl;
pub(crate) mod blocks;
pub(crate) mod ca_requests;
pub(crate) mod cas_seen;
pub(crate) mod conditional_request;
pub(crate) mod crl_fetch;
pub(crate) mod crl_fetch_state;
pub(crate) mod document_copies;
pub(crate) mod stored_crls;
