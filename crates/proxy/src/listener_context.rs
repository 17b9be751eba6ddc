//! The interface between a listener's accept loop and its worker.

use std::{
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::StatusCode;
use identity::Reason;
use listener::{
    ActiveListener, HandshakeEnd, HandshakeFailure, ListenerContext, Origin, ReachedLimit,
    Redirected,
};
use pki::TrustStore;
use telemetry::{
    AccessRecord, EndedBy, FailureKind, HandshakeResult, Limit, RefusedClient, RequestFields,
    RequestFieldsCopy, Times,
};

use crate::worker::Worker;

/// The worker, for the accept loop of a listener.
#[derive(Debug)]
pub(crate) struct WorkerContext(pub(crate) Rc<Worker>);

impl ListenerContext for WorkerContext {
    fn current(&self, listener: &str) -> Option<(Arc<ActiveListener>, Arc<TrustStore>)> {
        let generation = self.0.shared.current.load();
        let current = generation.listeners.get(listener)?;
        Some((Arc::clone(current), Arc::clone(&generation.trust)))
    }

    fn limit_reached(&self, listener: &str, limit: ReachedLimit) {
        limit_reached(&self.0, listener, limit);
    }

    fn accept_failed(&self, listener: &str, error: &io::Error) {
        let shared = &self.0.shared;
        shared
            .descriptors
            .accept_failed(&shared.metrics.alarms, listener, error, shared.now());
    }

    fn request_id(&self) -> String {
        self.0.request_id().to_string()
    }

    fn handshake_ended(&self, listener: &str, ended: HandshakeEnd<'_>) {
        handshake_ended(&self.0, listener, &ended);
    }

    fn redirected(&self, listener: &str, origin: Origin, redirected: &Redirected) {
        record_redirect(&self.0, listener, origin, redirected);
    }
}

/// The class of redirected requests in records and metrics.
pub const REDIRECT: &str = "redirect";

/// Counts and records a request that a listener redirected.
fn record_redirect(worker: &Worker, listener: &str, origin: Origin, redirected: &Redirected) {
    let (metrics, status) = (&worker.shared.metrics, redirected.status);
    let requests = metrics.request("-", "-", REDIRECT, None);
    requests.finished(status, Duration::ZERO);
    let mut record = AccessRecord::new(SystemTime::now(), Arc::from(listener), origin.client);
    record.peer = origin.peer.map(|peer| peer.ip());
    record.class = Some(REDIRECT);
    record.status = Some(status);
    record.reason = redirected.reason;
    let request = redirected.request();
    record.http_version = request.map(|_| "HTTP/1.1");
    record.request_fields = RequestFieldsCopy::of(&RequestFields {
        method: request.map(|(method, _)| method),
        target: request.map(|(_, target)| target),
        request_id: Some(redirected.request_id.as_bytes()),
        ..RequestFields::default()
    });
    worker.sink.send(&record);
}

/// Counts that a connection has reached a limit of a listener.
fn limit_reached(worker: &Worker, listener: &str, limit: ReachedLimit) {
    let limit = match limit {
        ReachedLimit::Connections => Limit::Connections,
        ReachedLimit::Handshakes => Limit::Handshakes,
        ReachedLimit::ConnectionsPerAddress => Limit::ConnectionsPerAddress,
        ReachedLimit::HandshakesPerAddress => Limit::HandshakesPerAddress,
        ReachedLimit::Descriptors => {
            let shared = &worker.shared;
            shared
                .descriptors
                .clients_wait(&shared.metrics.alarms, shared.now());
            Limit::Descriptors
        }
    };
    worker.listener_metrics(listener).limit(limit);
}

/// Counts a handshake. Also records it if it failed.
fn handshake_ended(worker: &Worker, listener: &str, ended: &HandshakeEnd<'_>) {
    let metrics = worker.listener_metrics(listener);
    let Some(failure) = &ended.failure else {
        return metrics.handshake(HandshakeResult::Ok);
    };
    let reason = failure.reason;
    let (result, ended_by) = result_of(reason);
    metrics.handshake(result);
    if reason == HandshakeFailure::NoBytes {
        // Load balancers and agents probe in this way every few seconds. No handshake started, so none was refused.
        return;
    }
    let mut record = AccessRecord::new(SystemTime::now(), Arc::from(listener), ended.origin.client);
    record.peer = ended.origin.peer.map(|peer| peer.ip());
    record.reason = Some(reason.as_str());
    if reason == HandshakeFailure::PlainHttp {
        record.status = Some(StatusCode::BAD_REQUEST.as_u16());
    }
    record.request_fields = RequestFieldsCopy::of(&RequestFields {
        request_id: failure.request_id.map(str::as_bytes),
        ..RequestFields::default()
    });
    record.cause = Some(failure.cause.into());
    let certname = failure.claimed.as_ref().map(|name| name.as_str().into());
    record.certname = certname;
    record.ended_by = ended_by;
    record.times = Times {
        handshake: Some(ended.took),
        ..Times::default()
    };
    worker.sink.send(&record);
    if result == HandshakeResult::OldTls {
        worker
            .shared
            .old_agents
            .offers_old_tls(worker.shared.now(), &record);
    }
    if result == HandshakeResult::Refused {
        worker.shared.metrics.failed(FailureKind::Refused);
        if let HandshakeFailure::Certificate(verdict) = reason {
            let metrics = &worker.shared.metrics;
            metrics.certificate_refused(verdict.as_str());
        }
        let refused = RefusedClient {
            client: ended.origin.client.ip().to_canonical(),
            listener: record.listener,
            certname: record.certname,
            is_verified: false,
            reason: reason.as_str(),
        };
        worker.shared.refusals.note(refused, record.when);
    }
}

/// The metric label of a failed handshake, and which side ended it.
fn result_of(failure: HandshakeFailure) -> (HandshakeResult, EndedBy) {
    match failure {
        HandshakeFailure::NoBytes | HandshakeFailure::ConnectionLost => {
            (HandshakeResult::Closed, EndedBy::Client)
        }
        HandshakeFailure::Timeout => (HandshakeResult::Timeout, EndedBy::Proxy),
        HandshakeFailure::Displaced => (HandshakeResult::Displaced, EndedBy::Proxy),
        HandshakeFailure::PlainHttp => (HandshakeResult::PlainHttp, EndedBy::Proxy),
        HandshakeFailure::OldTls => (HandshakeResult::OldTls, EndedBy::Proxy),
        HandshakeFailure::ClientAlert => (HandshakeResult::Failed, EndedBy::Client),
        // A wrong signature counts as a handshake error, because it may be the certificate's or the client's proof that it
        // holds the key.
        HandshakeFailure::NotTls
        | HandshakeFailure::NoCommonTlsParameters
        | HandshakeFailure::ProxyHeader
        | HandshakeFailure::LongHello
        | HandshakeFailure::NotHttp
        | HandshakeFailure::Protocol
        | HandshakeFailure::Internal
        | HandshakeFailure::Certificate(Reason::BadSignature) => {
            (HandshakeResult::Failed, EndedBy::Proxy)
        }
        HandshakeFailure::NoCertificate
        | HandshakeFailure::Certificate(_)
        | HandshakeFailure::ProxyPeer
        | HandshakeFailure::UnrecognizedName
        | HandshakeFailure::NoServerName => (HandshakeResult::Refused, EndedBy::Proxy),
    }
}
