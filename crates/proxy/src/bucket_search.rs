//! Searches further members for a file of the filebucket.
//!
//! Every Puppet server has its own bucket, and a checksum selects one member. A file that was stored while that member was
//! unavailable is in the bucket of the next member.

use std::{future::poll_fn, sync::Arc, time::Duration};

use balancing::{AttemptFailure, AttemptStage};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header::CONTENT_LENGTH};
use tokio::time::{Instant, timeout_at};
use upstream::{Exchange, MemberBody};

use crate::{
    attempts::{Attempt, Attempts, MemberResponse, Unanswered},
    error::ProxyError,
    record::ActiveExchange,
    respond,
    response_body::AnswerBody,
    upload::RequestBody,
};

/// Maximum number of further members to try after the first member answered that it does not have the file.
const FURTHER_BUCKETS_MAX: u32 = 2;
/// How long the search may delay the 404 of the first member.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum body of a 404 that is read completely. Puppet Server sends one line of JSON.
const MISS_BYTES_MAX: usize = 16 << 10;

impl Attempts<'_> {
    /// Whether a Puppet server answered that its filebucket does not have the file. This applies only to GET. An agent sends
    /// HEAD to find out whether it must store the file. On a 404 it stores the file on the member that the next GET tries
    /// first. A 404 of a web server whose Puppet services have not started shows nothing about the file.
    pub(crate) fn is_bucket_miss(&self, answer: &Exchange<RequestBody>) -> bool {
        let length = answer.body.size_hint().exact();
        self.plan.bucket_key.is_some()
            && self.request.method == Method::GET
            && self.request.upgrade.is_none()
            && answer.head.status == StatusCode::NOT_FOUND
            && respond::is_puppets_own(&answer.head.fields)
            && length.is_none_or(|length| length <= MISS_BYTES_MAX as u64)
    }

    /// Tries the next members in rendezvous order for a file that the first member does not have. `attempts_left`: the number
    /// of attempts that the request may still make. If none of the members has the file, the client gets the first response,
    /// whatever fails later.
    ///
    /// The request holds one connection to a member at a time, like any other request.
    pub(crate) async fn search_buckets(
        &self,
        first: Exchange<RequestBody>,
        mut tried: Vec<u64>,
        attempts_left: u32,
        exchange: &mut ActiveExchange,
    ) -> MemberResponse {
        let answered_by = exchange.member();
        let deadline = Instant::now() + SEARCH_TIME_MAX;
        let first = read_miss(first, deadline, exchange).await;
        for _ in 0..attempts_left.min(FURTHER_BUCKETS_MAX) {
            let now = Instant::now();
            if !exchange.upload.replayable() || !self.admit_search() {
                break;
            }
            let Ok(lease) = self.pick_at_once(&tried, now) else {
                break;
            };
            let counted = self.begin_attempt(&lease, exchange);
            let how = Attempt {
                fresh: true,
                now,
                tried: &tried,
                may_move: true,
            };
            let attempt = self.attempt(&lease, &exchange.upload, how);
            match timeout_at(deadline, attempt).await {
                Ok(Ok(found)) => {
                    self.note_answer(&lease, &counted, found.head.status);
                    if !found.head.status.is_server_error() {
                        self.note_time(&lease, now.elapsed());
                    }
                    if found.head.status.is_success() {
                        exchange.connected(found.connect);
                        exchange.answered(found.head.status);
                        exchange.lease = Some(lease);
                        return found.into();
                    }
                    if self.is_bucket_miss(&found) {
                        read_miss(found, deadline, exchange).await;
                    }
                }
                Ok(Err(Unanswered::Failed(failure, error))) => {
                    let upload = &exchange.upload;
                    self.note_failure(&lease, &failure, &error, (&counted, upload));
                }
                // The member is down or in maintenance, and another one is available. The next iteration picks that one.
                Ok(Err(Unanswered::Moved(_))) => counted.moved(),
                Err(_) => {
                    let member = Arc::clone(lease.member().address());
                    let error = late(member);
                    let upload = &exchange.upload;
                    self.note_failure(&lease, &LATE, &error, (&counted, upload));
                    break;
                }
            }
            tried.push(lease.member().id());
        }
        exchange.answered_by(answered_by);
        first
    }
}

/// Reads a 404 completely and releases its member, so that the search does not hold two members at once.
async fn read_miss(
    answer: Exchange<RequestBody>,
    deadline: Instant,
    exchange: &mut ActiveExchange,
) -> MemberResponse {
    let Exchange {
        mut head, mut body, ..
    } = answer;
    let read = timeout_at(deadline, read_whole(&mut body)).await;
    exchange.lease = None;
    // A body that is too long, late or incomplete is dropped, because an agent reads only the status code.
    let whole = read.ok().flatten();
    if whole.is_some() {
        body.give_back(Instant::now());
    }
    if whole.is_none() {
        head.fields.remove(&CONTENT_LENGTH);
    }
    MemberResponse {
        head,
        body: AnswerBody::Whole(whole.unwrap_or_default()),
    }
}

/// Reads the whole body. `None` if the body breaks off or is too long.
async fn read_whole(body: &mut MemberBody<RequestBody>) -> Option<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        whole.extend_from_slice(&data.ok()?);
        if whole.len() > MISS_BYTES_MAX {
            return None;
        }
    }
    Some(whole.freeze())
}

fn late(member: Arc<str>) -> ProxyError {
    ProxyError::Late {
        member,
        limit: SEARCH_TIME_MAX,
    }
}

const LATE: AttemptFailure = AttemptFailure {
    stage: AttemptStage::ReceiveHead,
    reused: false,
    unsent: false,
    broken_off: false,
};
