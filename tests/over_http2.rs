//! The end-to-end tests that speak to the proxy, repeated with clients that use HTTP/2.
//!
//! `cargo xtask test` repeats the modules whose promises depend on the protocol. `cargo xtask test --all` repeats every
//! module that can be; a reason stands beside each module that only `--all` repeats.
//! A test that needs HTTP/1.1 begins with `http1_alone!`; its counterpart is in `http2.rs`.
//! `tests/tidy.rs` lists the modules that are never repeated, with the reason.

#![allow(clippy::disallowed_methods, reason = "tests work with files")]
#![allow(dead_code, reason = "support serves modules that are not here")]

mod aborted_exchanges;
mod access_log;
mod advisories;
mod backups;
mod balancing;
mod blocks;
mod ca_protection;
mod client_cert_headers;
mod drain;
mod edge_answers;
mod exchange;
mod exchange_timeouts;
mod forged_headers;
mod generated_subjects;
mod header_forms;
mod header_names;
mod hostile_peers;
mod identity;
mod limits;
mod member_connections;
mod member_names;
mod member_responses;
mod member_states;
mod member_tls;
mod persistence;
mod pool_status;
mod probes;
mod queue;
mod reload;
mod reload_materials;
mod renewal;
mod request_bodies;
mod retries;
mod revocation;
mod route_access;
mod routes;
mod sessions;
mod slow_clients;
mod streaming;
mod support;
mod tracing_headers;

// The same decision on the same parsed head; `identity` and `routes` show that the head is the same.
#[cfg(feature = "every-module-over-http2")]
mod access;
// Its promises are about the admin socket, which has HTTP/1.1 only.
#[cfg(feature = "every-module-over-http2")]
mod admin_api;
// It reads rules and metrics.
#[cfg(feature = "every-module-over-http2")]
mod alerts;
// As `admin_api`.
#[cfg(feature = "every-module-over-http2")]
mod commands;
// It writes files; one test sends requests through the connection to a compiler, whose protocol is HTTP/1.1.
#[cfg(feature = "every-module-over-http2")]
mod init;
// Prometheus reads the metrics over HTTP/1.1.
#[cfg(feature = "every-module-over-http2")]
mod dashboard;
// As `metrics`.
#[cfg(feature = "every-module-over-http2")]
mod metric_labels;
// The metrics listener has HTTP/1.1 only.
#[cfg(feature = "every-module-over-http2")]
mod metrics_listener;
// As `discovery`.
#[cfg(feature = "every-module-over-http2")]
mod ca_by_dns;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod certificate_forms;
// The certificate is chosen during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod certificates;
// Chains are remembered during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod chain_cache;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod compile_masters;
// The CA is asked over HTTP/1.1 in both cases; `revocation` shows what a new CRL does to open connections.
#[cfg(feature = "every-module-over-http2")]
mod crl_fetch;
// As `crl_fetch`.
#[cfg(feature = "every-module-over-http2")]
mod crl_members;
// As `crl_fetch`.
#[cfg(feature = "every-module-over-http2")]
mod crl_persisted;
// As `crl_fetch`.
#[cfg(feature = "every-module-over-http2")]
mod crl_refused;
// The state directory does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod crl_restarts;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod crl_signature;
// Who the members are does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod discovery;
// As `discovery`.
#[cfg(feature = "every-module-over-http2")]
mod dns_restarts;
// One request per file in `conf/` shows that it starts.
#[cfg(feature = "every-module-over-http2")]
mod examples;
// `explain` opens no connection; the requests beside it are those of `access` and `routes`.
#[cfg(feature = "every-module-over-http2")]
mod explain;
// A request waits for its member's first byte in one function for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod failed_members;
// What decides is the parsed request and the member's answer, which comes over HTTP/1.1 in both cases.
#[cfg(feature = "every-module-over-http2")]
mod filebucket;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod haproxy_migration;
// What a member is sent and answers is the same for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod http10;
// The status service is asked over HTTP/1.1 in both cases.
#[cfg(feature = "every-module-over-http2")]
mod jrubies;
// The kind of work is found from the parsed request, and the choice of a member is the same.
#[cfg(feature = "every-module-over-http2")]
mod kinds_of_work;
// A legacy path has its class from the parsed request.
#[cfg(feature = "every-module-over-http2")]
mod legacy_routes;
// Signatures are checked during the handshake.
#[cfg(feature = "every-module-over-http2")]
mod legacy_signatures;
// The addresses of a listener are bound before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod listeners;
// One record has one form, whatever protocol it names; `access_log` shows that.
#[cfg(feature = "every-module-over-http2")]
mod log_outputs;
// Files are watched and loaded without regard to connections; `reload` shows what happens to those.
#[cfg(feature = "every-module-over-http2")]
mod materials;
// As `materials`.
#[cfg(feature = "every-module-over-http2")]
mod materials_refused;
// Members are reached over HTTP/1.1 in both cases, and what they do decides.
#[cfg(feature = "every-module-over-http2")]
mod member_capacity;
// The counters are the same; `limits` and `exchange` read them over both protocols.
#[cfg(feature = "every-module-over-http2")]
mod metrics;
// The CA is asked over HTTP/1.1 in both cases, and a certificate is presented before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod own_renewal;
// systemd and the package managers read these files; no request is sent.
#[cfg(feature = "every-module-over-http2")]
mod packaging;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod puppet_enterprise;
// What a member is sent is the same for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod ruby_masters;
// The service manager is notified of the process, not of requests.
#[cfg(feature = "every-module-over-http2")]
mod service_manager;
// As `examples`.
#[cfg(feature = "every-module-over-http2")]
mod split_services;
// The state directory does not depend on how a request arrived.
#[cfg(feature = "every-module-over-http2")]
mod state_directory;
// The verdict is reached from the certificate, before a protocol is used.
#[cfg(feature = "every-module-over-http2")]
mod trust_policies;
// The page is served over HTTP/1.1 in both cases.
#[cfg(feature = "every-module-over-http2")]
mod ui;
// TLS is the same on every kind of socket.
#[cfg(feature = "every-module-over-http2")]
mod unix_listeners;
// Agents are noted by one function for both protocols.
#[cfg(feature = "every-module-over-http2")]
mod who;

/// The protocol that clients use with the proxy under test.
pub(crate) const PROTOCOL: testkit::Protocol = testkit::Protocol::Http2;
