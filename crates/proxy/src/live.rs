//! What a listener's accept loop asks of its worker and tells it.

use std::{rc::Rc, sync::Arc, time::SystemTime};

use listener::{HandshakeEnd, ListenerTls, Live};
use pki::TrustStore;
use telemetry::{AccessRecord, HandshakeResult, Limit, Times};

use crate::worker::Worker;
/// How a listener's accept loop sees its worker.
#[derive(Debug)]
pub(crate) struct LiveWorker(pub(crate) Rc<Worker>);

impl Live for LiveWorker {
    fn current(&self, listener: &str) -> Option<(Arc<ListenerTls>, Arc<TrustStore>)> {
        let generation = self.0.shared.current.load();
        let current = generation.listeners.get(listener)?;
        Some((Arc::clone(current), Arc::clone(&generation.trust)))
    }

    fn limit_reached(&self, listener: &str, limit: &'static str) {
        limit_reached(&self.0, listener, limit);
    }

    fn handshake_ended(&self, listener: &str, ended: HandshakeEnd<'_>) {
        handshake_ended(&self.0, listener, &ended);
    }
}

/// Counts a listener's limit that somebody now waits at.
fn limit_reached(worker: &Worker, listener: &str, limit: &'static str) {
    let limit = if limit == "connections_max" {
        Limit::Connections
    } else {
        Limit::Handshakes
    };
    worker.listener_metrics(listener).limit(limit);
}

/// Counts a handshake; a failed one leaves a record.
fn handshake_ended(worker: &Worker, listener: &str, ended: &HandshakeEnd<'_>) {
    let metrics = worker.listener_metrics(listener);
    let Some((reason, story)) = ended.failure else {
        return metrics.handshake(HandshakeResult::Ok);
    };
    let (result, ended_by) = match reason {
        "unspoken" | "connection-lost" => (HandshakeResult::Closed, telemetry::EndedBy::Client),
        "handshake-timeout" => (HandshakeResult::Timeout, telemetry::EndedBy::Proxy),
        "client-alert" => (HandshakeResult::Failed, telemetry::EndedBy::Client),
        "not-tls" | "nothing-in-common" | "handshake-failed" | "bad-signature" => {
            (HandshakeResult::Failed, telemetry::EndedBy::Proxy)
        }
        _ => (HandshakeResult::Refused, telemetry::EndedBy::Proxy),
    };
    metrics.handshake(result);
    if reason == "unspoken" {
        // Load balancers and agents probe so, every few seconds; no handshake began, none was refused.
        return;
    }
    let mut record = AccessRecord::new(SystemTime::now(), Arc::from(listener), ended.client);
    record.reason = Some(reason);
    record.cause = Some(story.into());
    record.ended_by = ended_by;
    record.times = Times {
        handshake: Some(ended.took),
        ..Times::default()
    };
    worker.sink.send(&record);
}
