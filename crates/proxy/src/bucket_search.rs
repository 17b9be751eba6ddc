//! The search for a filebucket's file on further members.
//!
//! Every Puppet server has a bucket of its own, and a checksum leads to one member. A file that was stored while that
//! member was away is in the bucket of the next one.

use std::{future::poll_fn, sync::Arc, time::Duration};

use balancing::{AttemptFailure, AttemptStage};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header::CONTENT_LENGTH};
use tokio::time::{Instant, timeout_at};
use upstream::{Exchange, MemberBody};

use crate::{
    attempts::{Attempt, Attempts, MemberAnswer, Unanswered},
    error::ProxyError,
    record::Exchanged,
    respond,
    response_body::AnswerBody,
    upload::RequestBody,
};

/// Members that are asked after the first one has answered that it does not have the file.
const FURTHER_BUCKETS_MAX: u32 = 2;
/// How long the search may delay the answer of the first member, which is known by then.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(5);
/// Largest body of a 404 that is read whole. A Puppet server's is a line of JSON.
const MISS_BYTES_MAX: usize = 16 << 10;

impl Attempts<'_> {
    /// Whether a Puppet server says that its filebucket does not have the file. Only for GET: an agent asks by HEAD
    /// whether it has to store the file, and stores it on 404 where the next GET looks first. The 404 of a web server
    /// whose Puppet services have not started says nothing about the file.
    pub(crate) fn is_bucket_miss(&self, answer: &Exchange<RequestBody>) -> bool {
        let length = answer.body.size_hint().exact();
        self.plan.bucket_key.is_some()
            && self.request.method == Method::GET
            && self.request.upgrade.is_none()
            && answer.head.status == StatusCode::NOT_FOUND
            && respond::is_puppets_own(&answer.head.headers)
            && length.is_none_or(|length| length <= MISS_BYTES_MAX as u64)
    }

    /// Asks the next members in rendezvous order for the file that the first member does not have. `attempts_left`: how
    /// many attempts the request may still make. If none of them has the file, the first answer stands: a member that
    /// fails here makes no answer worse than it was.
    ///
    /// The client holds one connection to a member at a time, as with any other request.
    pub(crate) async fn search_buckets(
        &self,
        first: Exchange<RequestBody>,
        mut tried: Vec<u64>,
        attempts_left: u32,
        exchanged: &mut Exchanged,
    ) -> MemberAnswer {
        let answered_by = exchanged.member();
        let deadline = Instant::now() + SEARCH_TIME_MAX;
        let first = read_miss(first, deadline, exchanged).await;
        for _ in 0..attempts_left.min(FURTHER_BUCKETS_MAX) {
            let now = Instant::now();
            if !exchanged.upload.replayable() || !self.admit_search() {
                break;
            }
            let Ok(lease) = self.pick_at_once(&tried, now) else {
                break;
            };
            let counted = self.begin_attempt(&lease, exchanged);
            let how = Attempt {
                fresh: true,
                now,
                tried: &tried,
                may_move: true,
            };
            let attempt = self.attempt(&lease, &exchanged.upload, how);
            match timeout_at(deadline, attempt).await {
                Ok(Ok(found)) => {
                    self.note_answer(&lease, &counted);
                    if found.head.status.is_success() {
                        exchanged.connected(found.connect);
                        exchanged.answered(found.head.status);
                        exchanged.lease = Some(lease);
                        return found.into();
                    }
                    if self.is_bucket_miss(&found) {
                        read_miss(found, deadline, exchanged).await;
                    }
                }
                Ok(Err(Unanswered::Failed(failure, error))) => {
                    let upload = &exchanged.upload;
                    self.note_failure(&lease, &failure, &error, (&counted, upload));
                }
                // Its member is down or in maintenance, and there is another: the next pick finds it.
                Ok(Err(Unanswered::Moved(_))) => counted.moved(),
                Err(_) => {
                    let member = Arc::clone(lease.member().address());
                    let error = late(member);
                    let upload = &exchanged.upload;
                    self.note_failure(&lease, &LATE, &error, (&counted, upload));
                    break;
                }
            }
            tried.push(lease.member().id());
        }
        exchanged.answered_by(answered_by);
        first
    }
}

/// Reads a 404 whole and gives its member back, so that the search does not hold two members at once.
async fn read_miss(
    answer: Exchange<RequestBody>,
    deadline: Instant,
    exchanged: &mut Exchanged,
) -> MemberAnswer {
    let Exchange {
        mut head, mut body, ..
    } = answer;
    let read = timeout_at(deadline, read_whole(&mut body)).await;
    exchanged.lease = None;
    // A body that is too long, late or broken off is left out: an agent looks at the status alone.
    let whole = read.ok().flatten();
    if whole.is_some() {
        body.give_back(Instant::now());
    }
    if whole.is_none() {
        head.headers.remove(CONTENT_LENGTH);
    }
    MemberAnswer {
        head,
        body: AnswerBody::Whole(whole.unwrap_or_default()),
    }
}

/// None where it breaks off or is too long.
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
};
