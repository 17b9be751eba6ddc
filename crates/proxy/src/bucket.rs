//! The search for a filebucket's file on further members.
//!
//! Every Puppet server has a bucket of its own, and a checksum leads to one member. A file that was stored while that
//! member was away is in the bucket of the next one.

use http::{Method, StatusCode, response};
use tokio::time::Instant;
use upstream::Exchange;

use crate::{
    attempts::{Attempt, Attempts, Unanswered},
    error::ProxyError,
    record::Exchanged,
    respond,
    upload::RequestBody,
};

/// Members that are asked after the first one has answered that it does not have the file.
const FURTHER_BUCKETS_MAX: u32 = 2;

impl Attempts<'_> {
    /// Whether a Puppet server says that its filebucket does not have the file. Only for GET: an agent asks by HEAD
    /// whether it has to store the file, and stores it on 404 where the next GET looks first. The 404 of a web server
    /// whose Puppet services have not started says nothing about the file.
    pub(crate) fn is_bucket_miss(&self, head: &response::Parts) -> bool {
        self.plan.bucket_key.is_some()
            && self.request.method == Method::GET
            && self.request.upgrade.is_none()
            && head.status == StatusCode::NOT_FOUND
            && respond::is_puppets_own(&head.headers)
    }

    /// Asks the next members in rendezvous order for the file that the first member does not have. `attempts_left`: how
    /// many attempts the request may still make. If none of them has the file, the first answer stands: a member that
    /// fails here makes no answer worse than it was.
    pub(crate) async fn search_buckets(
        &self,
        first: Exchange<RequestBody>,
        mut tried: Vec<usize>,
        attempts_left: u32,
        exchanged: &mut Exchanged,
    ) -> Exchange<RequestBody> {
        let answered_by = exchanged.member();
        for _ in 0..attempts_left.min(FURTHER_BUCKETS_MAX) {
            let now = Instant::now();
            if !exchanged.upload.replayable() {
                break;
            }
            let Ok(lease) = self.pick(&tried, now) else {
                break;
            };
            let counted = self.begin_attempt(&lease, exchanged);
            let how = Attempt {
                fresh: true,
                now,
                tried: &tried,
                may_move: false,
            };
            match self.attempt(&lease, &exchanged.upload, how).await {
                Ok(found) => {
                    self.note_answer(&lease, &counted);
                    if found.head.status.is_success() {
                        exchanged.connected(found.connect);
                        exchanged.answered(found.head.status);
                        exchanged.lease = Some(lease);
                        return found;
                    }
                }
                Err(Unanswered::Failed(failure, error)) => {
                    self.note_failure(&lease, &failure, &error, &counted);
                    // The deadline is that of the whole request.
                    if matches!(error, ProxyError::Late { .. }) {
                        break;
                    }
                }
                // This attempt may not move.
                Err(Unanswered::Moved(_)) => {}
            }
            tried.push(lease.index());
        }
        exchanged.answered_by(answered_by);
        first
    }
}
