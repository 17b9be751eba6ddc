//! Records of client errors that did not become requests.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::StatusCode;
use http1::RefusedHead;
use pki::Peer;
use telemetry::{AccessRecord, FailureKind, Limit, RequestFields, RequestFieldsCopy};

use crate::{
    connection::Conn, exceeded_limit::ExceededLimit, reason::LogReason, request_id::RequestId,
    worker::Worker,
};

/// Counts and records a head that was refused. The response contains the same id.
pub(crate) fn head_refused(worker: &Worker, conn: &Conn, refused: RefusedHead, id: &RequestId) {
    let (status, reason) = match refused {
        RefusedHead::TooLarge => {
            conn.metrics.limit(Limit::Head);
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            (status, LogReason::HeadTooLarge)
        }
        RefusedHead::TargetTooLong => {
            conn.metrics.limit(Limit::Head);
            (StatusCode::URI_TOO_LONG, LogReason::HeadTooLarge)
        }
        _ => (StatusCode::BAD_REQUEST, LogReason::BadHead),
    };
    let mut record = record_of(conn, reason, refused.to_string());
    record.request_fields = RequestFieldsCopy::of(&RequestFields {
        request_id: Some(id.as_bytes()),
        ..RequestFields::default()
    });
    record_no_request(worker, status, reason, record);
}

/// The response to a head that was refused. `None`: the client does not speak HTTP/1.
pub(crate) fn answer_to(refused: RefusedHead) -> Option<(StatusCode, &'static str)> {
    match refused {
        RefusedHead::Http2 => None,
        RefusedHead::TooLarge => Some((
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "The request was refused: its head has more bytes than `head_max` allows, or more than 100 headers.\n",
        )),
        RefusedHead::TargetTooLong => Some((
            StatusCode::URI_TOO_LONG,
            "The request was refused: its target (URL) is longer than 64 KiB.\n",
        )),
        _ => Some((
            StatusCode::BAD_REQUEST,
            "Bad request: the head of the request is malformed, so the request was not read.\n",
        )),
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
    record_no_request(worker, status, reason, record_of(conn, reason, cause));
}

fn record_no_request(
    worker: &Worker,
    status: StatusCode,
    reason: LogReason,
    mut record: AccessRecord,
) {
    record.status = Some(status.as_u16());
    worker.shared.metrics.refused(reason.as_str());
    worker.shared.metrics.failed(FailureKind::Refused);
    worker
        .shared
        .metrics
        .request("-", "-", "-", None)
        .finished(status.as_u16(), Duration::ZERO);
    worker.sink.send(&record);
}

/// Records that a client violated HTTP/2, so that its connection was closed.
pub(crate) fn frames_refused(worker: &Worker, conn: &Conn, error: &h2::Error) {
    let record = record_of(conn, LogReason::BadFrames, frames_cause(error));
    worker.shared.metrics.refused(LogReason::BadFrames.as_str());
    worker.sink.send(&record);
}

/// The name of the error in RFC 9113, 7. h2's own message depends on the layer that found the error.
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

/// A record with the known facts about a client without a request.
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
    record.http_version = conn.streams.is_some().then_some("HTTP/2");
    record.reason = Some(reason.as_str());
    record.cause = Some(cause.into());
    record
}
