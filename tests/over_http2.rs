//! The end-to-end tests that speak to the front, once more, with clients that speak HTTP/2.
//!
//! What can be said in HTTP/1.1 alone says so (`http1_alone!`); its counterpart is in `http2.rs`.
//! Not here, since nothing in them would differ: `admin`, `cli` and `configuration`, which speak to the admin socket, the
//! command line and files (`configuration` shakes hands once to see a certificate); `tidy`, which reads the tree;
//! `tunnels`, since HTTP/2 has no Upgrade (what asks for one there is refused, in `http2`); and `http2` itself.

#![allow(clippy::disallowed_methods, reason = "tests work with files")]
#![allow(dead_code, reason = "support serves modules that are not here")]

mod access;
mod access_log;
mod adversary;
mod advisories;
mod balancing;
mod blocks;
mod ca_protection;
mod certificate_forms;
mod certificates;
mod crl_fetch;
mod drain;
mod edge_answers;
mod examples;
mod exchange;
mod explain;
mod header_forms;
mod identity;
mod kept;
mod legacy;
mod limits;
mod log_outputs;
mod materials;
mod metrics;
mod reload;
mod remembered;
mod renewal;
mod revocation;
mod routes;
mod sessions;
mod state;
mod support;
mod trust_policies;
mod who;

/// What clients speak to the proxy under test.
pub(crate) const SPOKEN: testkit::Protocol = testkit::Protocol::Http2;
