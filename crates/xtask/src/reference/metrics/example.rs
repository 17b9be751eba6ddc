//! An exposition with every metric and every value of the labels that are closed sets.

use std::time::{Duration, SystemTime};

use balancing::Work;
use routing::{Class, Document};
use serde_json::{Value, json};
use telemetry::{Exposition, Metrics};

/// The value of a label that is not a closed set.
pub(super) const OPEN: &str = "*";

/// The exposition, as OpenMetrics.
pub(super) fn exposition() -> String {
    let status = serde_json::from_value(status()).expect("the example is a status");
    let gauges = admin::gauges(&status, SystemTime::UNIX_EPOCH);
    metrics().encode(gauges, Exposition::OpenMetrics)
}

/// The families that count events, with a series for each value.
fn metrics() -> Metrics {
    let metrics = Metrics::default();
    lifecycle::start_at_zero(&metrics);
    metrics.listener(OPEN);
    metrics.pool(OPEN);
    let member = metrics.member(OPEN, OPEN);
    for work in Work::ALL {
        member.took(work, Duration::ZERO);
    }
    metrics.passthrough(OPEN, OPEN);
    metrics.access_rule(OPEN);
    for work in Work::ALL.map(Some).into_iter().chain([None]) {
        metrics.request(OPEN, OPEN, proxy::REDIRECT, work);
    }
    for class in Class::ALL
        .map(Class::as_str)
        .into_iter()
        .chain([proxy::REDIRECT])
    {
        let request = metrics.request(OPEN, OPEN, class, None);
        for code in 0..=1000 {
            request.finished(code, Duration::ZERO);
        }
    }
    metrics
}

/// A status in which every optional fact is known.
fn status() -> Value {
    let at = "2030-01-01T00:00:00Z";
    let copies = Document::ALL.map(|document| (document.as_str(), 1));
    let copies: std::collections::BTreeMap<_, _> = copies.into_iter().collect();
    let expiry = telemetry::EXPIRY_WORDS.map(|word| (word, 1));
    let expiry: std::collections::BTreeMap<_, _> = expiry.into_iter().collect();
    let certificate = |role| json!({ "role": role, "name": OPEN, "file": OPEN, "subject": OPEN, "not_after": at });
    json!({
        "version": OPEN,
        "phase": "serving",
        "generation": { "number": 1, "loaded_at": at, "fingerprint": OPEN },
        "last_reload": { "at": at, "result": "applied", "generation": 1, "report": "" },
        "listeners": [{
            "name": OPEN, "address": OPEN, "addresses": [], "connections": 0, "connections_max": 1, "handshakes": 0,
            "handshakes_max": 1, "certificate_rejected": null,
        }],
        "pools": [{ "name": OPEN, "algorithm": OPEN, "available": 1, "members": [member(at)] }],
        "dns": [],
        "trust": {
            "generation": 1,
            "cas": [{ "subject": OPEN, "not_after": at, "source": OPEN }],
            "crls": [{
                "issuer": OPEN, "number": "1", "entries": 0, "this_update": at, "next_update": at, "expired": false,
                "accepted_until": at, "source": OPEN, "agent_copy_age_seconds": 1,
            }],
            "crl_missing": [],
            "unchecked": [],
            "alarms": [],
            "fetch": {
                "last_attempt": at, "last_answer": at, "member": OPEN, "failing": null,
                "shrunk": [{
                    "issuer": OPEN, "number": "1", "entries": 0, "active_number": "2", "is_older": true, "missing": 1,
                    "accepted_again": 1, "since": at,
                }],
            },
            "agent_copy_age_seconds": 1,
        },
        "materials": { "watch": "notify", "refused": null },
        "state": { "directory": OPEN, "unusable": null },
        "renewal": { "configured": false, "off": null },
        "alarms": [],
        "limits": {},
        "build": { "version": OPEN, "commit": OPEN, "rustc": OPEN, "tls": OPEN },
        "process": {
            "pid": 1, "cpu_milliseconds": 1, "resident_bytes": 1, "virtual_bytes": 1, "open_fds": 1, "max_fds": 1,
            "started": at,
        },
        "certificates": [certificate("listener"), certificate("pool")],
        "agents": { "by_expiry": expiry, "by_issuer": { OPEN: 1 }, "evicted": 0 },
        "edge_copies": copies,
        "fleet": {
            "name": OPEN, "site": OPEN, "endpoints": [], "connected": true, "unreached": null, "no_space": null,
            "first_list": at, "records": { "block": 0, "member": 0 }, "proxies": [], "differences": [], "refused": [],
            "rejected_records": { "seal": 0, "unknown-kind": 0, "too-long": 0, "malformed": 0, "other-key": 0 },
            "sync_age_seconds": 0, "is_starting": false, "apply_delay_milliseconds": 1,
        },
    })
}

fn member(at: &str) -> Value {
    json!({
        "address": OPEN,
        "health": "up",
        "since": null,
        "why": null,
        "last_probe": null,
        "jrubies": { "count": 4, "free": 1 },
        "agent_check": {
            "state": "ready", "down": false, "weight_percent": 100, "at": at, "answer": null, "failure": null,
        },
        "administrative_state": "ready",
        "in_flight": 0,
        "connections": 0,
        "weight": 1,
    })
}
