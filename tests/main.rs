//! End-to-end tests: the built binary, real TLS, raw bytes at both ends. Each module tests one promise.

#![expect(clippy::disallowed_methods, reason = "tests work with files")]

mod aborted_exchanges;
mod access;
mod access_log;
mod admin;
mod admin_api;
mod advisories;
mod alerts;
mod allocator;
mod anonymous_listeners;
mod backups;
mod balancing;
mod blocks;
mod build_script;
mod ca_by_dns;
mod ca_expiry;
mod ca_protection;
mod ca_rotation;
mod certificate_forms;
mod certificates;
mod chain_cache;
mod checks;
mod cli;
mod client_cert_headers;
mod commands;
mod compile_masters;
mod configuration;
mod crl_dropped;
mod crl_fetch;
mod crl_members;
mod crl_persisted;
mod crl_refused;
mod crl_restarts;
mod crl_signature;
mod dashboard;
mod dead_members;
mod descriptors;
mod discovery;
mod dns_restarts;
mod doctor;
mod doctor_fleet;
mod doctor_headers;
mod doctor_materials;
mod doctor_members;
mod drain;
mod edge_answers;
mod event_history;
mod examples;
mod exchange;
mod exchange_timeouts;
mod explain;
mod failed_members;
mod filebucket;
mod fleet;
mod fleet_batches;
mod fleet_command;
mod fleet_conditions;
mod fleet_crls;
mod fleet_faults;
mod fleet_turn;
mod forged_headers;
mod full_disks;
mod generated_subjects;
mod hand_over;
mod handshake_threads;
mod haproxy_migration;
mod header_forms;
mod header_names;
mod header_rules;
mod hostile_peers;
mod http10;
mod http2;
mod http2_floods;
mod http2_timeouts;
mod identity;
mod init;
mod jrubies;
mod kinds_of_work;
mod layer4_alone;
mod legacy_routes;
mod legacy_signatures;
mod limits;
mod listeners;
mod log_outputs;
mod materials;
mod materials_refused;
mod member_capacity;
mod member_connections;
mod member_names;
mod member_responses;
mod member_states;
mod member_tls;
mod member_traffic;
mod metric_labels;
mod metrics;
mod metrics_listener;
mod own_renewal;
mod own_revocation;
mod packaging;
mod passthrough;
mod passthrough_guards;
mod pending_changes;
mod persistence;
mod pool_status;
mod probes;
mod proxy_protocol;
mod puppet_enterprise;
mod queue;
mod read_only_requests;
mod redirect;
mod reload;
mod reload_materials;
mod renewal;
mod renewal_ca_kind;
mod renewals_refused;
mod request_bodies;
mod retries;
mod revocation;
mod rollback;
mod route_access;
mod routes;
mod ruby_masters;
mod running_socket;
mod separate_cas;
mod service_manager;
mod sessions;
mod slow_clients;
mod sni_passthrough;
mod split_services;
mod state_directory;
mod streaming;
mod supervised_tasks;
mod support;
mod tidy;
mod tracing_headers;
mod trust_policies;
mod tunnels;
mod ui;
mod unavailable;
mod unix_listeners;
mod upgrades;
mod waiting_handshakes;
mod who;
mod wrong_clock;

/// The environment variable that selects the protocol: `http2`, or unset for HTTP/1.1. over_http2.tsv lists the modules
/// that are repeated over HTTP/2.
const PROTOCOL: &str = "PROSCENIUM_TEST_PROTOCOL";

/// The protocol that clients use with the proxy under test.
pub(crate) fn protocol() -> testkit::Protocol {
    match std::env::var(PROTOCOL).as_deref() {
        Err(_) => testkit::Protocol::Http1,
        Ok("http2") => testkit::Protocol::Http2,
        Ok(other) => panic!("{PROTOCOL} is {other:?}; it can only be \"http2\""),
    }
}
