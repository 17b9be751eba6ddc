//! End-to-end tests: the built binary, real TLS, raw bytes at the far end. One module a promise.

#![allow(clippy::disallowed_methods, reason = "tests work with files")]

mod abuse;
mod access;
mod access_log;
mod admin;
mod adversary;
mod advisories;
mod balancing;
mod blocks;
mod ca_protection;
mod certificate_forms;
mod certificates;
mod checks;
mod cli;
mod configuration;
mod crl_fetch;
mod crl_signature;
mod discovery;
mod doctor;
mod drain;
mod edge_answers;
mod examples;
mod exchange;
mod explain;
mod failed_members;
mod filebucket;
mod guards;
mod header_forms;
mod http10;
mod http2;
mod http2_floods;
mod identity;
mod jrubies;
mod kept;
mod legacy;
mod legacy_routes;
mod limits;
mod log_outputs;
mod materials;
mod member_states;
mod metrics;
mod packaging;
mod passthrough;
mod persistence;
mod proxy_protocol;
mod queue;
mod redirect;
mod reload;
mod remembered;
mod renewal;
mod revocation;
mod routes;
mod ruby_masters;
mod service_manager;
mod sessions;
mod split_services;
mod state;
mod support;
mod tidy;
mod trust_policies;
mod tunnels;
mod who;
mod work;

/// What clients speak to the proxy under test.
pub(crate) const SPOKEN: testkit::Protocol = testkit::Protocol::Http1;
