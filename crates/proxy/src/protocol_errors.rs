//! Records of client errors that never became a request.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::StatusCode;
use pki::Peer;
use telemetry::{AccessRecord, RequestFields, RequestFieldsCopy};

use crate::{connection::Conn, exceeded_limit::ExceededLimit, reason::LogReason, worker::Worker};

/// Counts and records a head that hyper answered with an error by itself.
pub(crate) fn head_refused(worker: &Worker, conn: &Conn, error: &hyper::Error) {
    let text = error.to_string();
    let (status, reason) = match error.is_parse_too_large() {
        true if text.contains("URI") => (StatusCode::URI_TOO_LONG, LogReason::HeadTooLarge),
        true => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            LogReason::HeadTooLarge,
        ),
        false => (StatusCode::BAD_REQUEST, LogReason::BadHead),
    };
    no_request(worker, conn, status, reason, head_cause(error));
}

/// The cause of hyper's error, in the wording of this proxy.
fn head_cause(error: &hyper::Error) -> String {
    if error.is_parse_too_large() {
        return "the head of the request is too large".to_owned();
    }
    match error.is_parse() {
        true => format!(
            "malformed request: {}",
            error.to_string().replace(" parsed", "")
        ),
        false => pki::cause(error, Peer::Client, |_| None),
    }
}

/// Counts and records a head that did not become a request.
pub(crate) fn no_request(
    worker: &Worker,
    conn: &Conn,
    status: StatusCode,
    reason: LogReason,
    cause: String,
) {
    let mut record = record_of(conn, reason, cause);
    record.status = Some(status.as_u16());
    worker.shared.metrics.refused(reason.as_str());
    worker
        .shared
        .metrics
        .request("-", "-", "-", None)
        .finished(status.as_u16(), Duration::ZERO);
    worker.sink.send(&record);
}

/// Records that a client violated HTTP/2, which closed its connection.
pub(crate) fn frames_refused(worker: &Worker, conn: &Conn, error: &h2::Error) {
    let record = record_of(conn, LogReason::BadFrames, frames_cause(error));
    worker.shared.metrics.refused(LogReason::BadFrames.as_str());
    worker.sink.send(&record);
}

/// h2 names the layer that found an error. The error's name in RFC 9113, 7, is the same for every client.
fn frames_cause(error: &h2::Error) -> String {
    match error.reason() {
        Some(reason) => format!("the client violated HTTP/2: {reason:?}"),
        None => pki::cause(error, Peer::Client, |_| None),
    }
}

/// Counts and records that a connection closes because its client exceeded a limit.
pub(crate) fn overstepped(worker: &Worker, conn: &Conn, excess: ExceededLimit) {
    conn.metrics.limit(excess.limit());
    let record = record_of(conn, excess.reason(), excess.cause().to_owned());
    worker.sink.send(&record);
}

/// A record with what is known of a client without a request.
fn record_of(conn: &Conn, reason: LogReason, cause: String) -> AccessRecord {
    let verdict = conn.last_verdict();
    let mut record = AccessRecord::new(
        SystemTime::now(),
        Arc::clone(&conn.downstream.listener),
        conn.downstream.client,
    );
    record.tls = conn.tls.clone();
    record.peer = conn.downstream.peer.map(|peer| peer.ip());
    record.verdict = Some(Arc::clone(&verdict.verdict));
    record.certname = verdict.certname.clone();
    if let Some(id) = conn.notes.refused() {
        record.request_fields = RequestFieldsCopy::of(&RequestFields {
            request_id: Some(id.as_bytes()),
            ..RequestFields::default()
        });
    }
    record.http_version = conn.streams.is_some().then_some("HTTP/2");
    record.reason = Some(reason.as_str());
    record.cause = Some(cause.into());
    record
}
