//! Verification of certificates, CRLs and requests with generated CAs. There is one module for each subject.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod chain_memory;
mod critical_policies;
mod crl_selection;
mod csr;
mod csr_kinds;
mod deny;
mod directory_constraints;
mod email_constraints;
mod facts;
mod fetched;
mod handshakes;
mod legacy_signatures;
mod lookup;
mod member_verifier;
mod path_start;
mod pem_forms;
mod policies;
mod refusals;
mod renewal;
mod required_cas;
mod retained;
mod revocation;
mod separate_roots;
mod spelling;
mod support;
mod trust_changes;
mod verdicts;
