//! The end-to-end tests that speak to the proxy, repeated with clients that use HTTP/2.
//!
//! `cargo xtask test` repeats the modules whose promises depend on the protocol. `cargo xtask test --all` repeats every
//! module that can be; a reason stands beside each module that only `--all` repeats.
//! A test that needs HTTP/1.1 begins with `http1_alone!`; its counterpart is in `http2.rs`.
//! `tests/tidy.rs` lists the modules that are never repeated, with the reason.

#![allow(clippy::disallowed_methods, reason = "tests work with files")]
#![allow(dead_code, reason = "support serves modules that are not here")]

mod abuse;
mod access_log;
mod adversary;
mod advisories;
mod balancing;
mod blocks;
mod ca_protection;
mod drain;
mod edge_answers;
mod exchange;
mod header_forms;
// What a member is sent and answers is the same for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod http10;
mod identity;
mod limits;
mod member_names;
mod member_states;
mod persistence;
mod queue;
mod reload;
mod renewal;
mod revocation;
mod routes;
mod sessions;
mod support;

// The same decision on the same parsed head; `identity` and `routes` show that the head is the same.
#[cfg(feature = "every-module-over-http2")]
mod access;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod certificate_forms;
// The certificate is chosen during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod certificates;
// The CA is asked over HTTP/1.1 in both cases; `revocation` shows what a new CRL does to open connections.
#[cfg(feature = "every-module-over-http2")]
mod crl_fetch;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod crl_signature;
// One request per file in `conf/` shows that it starts.
#[cfg(feature = "every-module-over-http2")]
mod examples;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod haproxy_migration;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod compile_masters;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod puppet_enterprise;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod split_services;
// Who the members are does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod discovery;
// The addresses of a listener are bound before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod listeners;
// TLS is the same on every kind of socket.
#[cfg(feature = "every-module-over-http2")]
mod unix_listeners;
// `explain` opens no connection; the requests beside it are those of `access` and `routes`.
#[cfg(feature = "every-module-over-http2")]
mod explain;
// A request waits for its member's first byte in one function for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod failed_members;
// What decides is the parsed request and the member's answer, which comes over HTTP/1.1 in both cases.
#[cfg(feature = "every-module-over-http2")]
mod filebucket;
// Members are reached over HTTP/1.1 in both cases, and what they do decides.
#[cfg(feature = "every-module-over-http2")]
mod guards;
// The status service is asked over HTTP/1.1 in both cases.
#[cfg(feature = "every-module-over-http2")]
mod jrubies;
// The state directory does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod kept;
// Signatures are checked during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod legacy;
// A legacy path has its class from the parsed request.
#[cfg(feature = "every-module-over-http2")]
mod legacy_routes;
// One record has one form, whatever protocol it names; `access_log` shows that.
#[cfg(feature = "every-module-over-http2")]
mod log_outputs;
// Files are watched and loaded without regard to connections; `reload` shows what happens to those.
#[cfg(feature = "every-module-over-http2")]
mod materials;
// The counters are the same; `limits` and `exchange` read them over both protocols.
#[cfg(feature = "every-module-over-http2")]
mod metrics;
// systemd and the package managers read these files; no request is sent.
#[cfg(feature = "every-module-over-http2")]
mod packaging;
// Chains are remembered during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod remembered;
// What a member is sent is the same for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod ruby_masters;
// The service manager is notified of the process, not of requests.
#[cfg(feature = "every-module-over-http2")]
mod service_manager;
// The state directory does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod state;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod trust_policies;
// Agents are noted by one function for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod who;
// The kind of work is found from the parsed request, and the choice of a member is the same.
#[cfg(feature = "every-module-over-http2")]
mod work;

/// The protocol that clients use with the proxy under test.
pub(crate) const SPOKEN: testkit::Protocol = testkit::Protocol::Http2;
