//! The wait for the head of a response.

use std::{pin::Pin, time::Duration};

use tokio::time::Instant;

use crate::{pool_runtime::PoolLease, response_timer::ResponseTimer, upload::Upload};

/// How often a request that waits looks whether its member has failed. Nearly all requests are answered before the first
/// look, and so pay nothing for it.
const MEMBER_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How long a member may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After the request's last byte, over all attempts and all waiting for connections.
    pub(crate) first_byte: Duration,
    /// After the last byte that it took, while there are more.
    pub(crate) idle: Duration,
}

/// What is called now and then while a member does not answer.
pub(crate) struct WaitHooks<'a> {
    /// Notes that it takes long.
    pub(crate) long: &'a dyn Fn(),
    /// Finds another member; none: the request may not move.
    pub(crate) elsewhere: Option<&'a dyn Fn() -> Option<PoolLease>>,
}

/// Why the wait ended without a response.
pub(crate) enum NoResponse {
    /// The time for the answer is over.
    Late,
    /// The time for taking more of the body is over.
    Stalled,
    /// The member has failed, and this one can be asked.
    Moved(PoolLease),
}

/// Waits for the head of a response. The limit `first_byte` counts from the request's last byte and not from the
/// beginning of this attempt, so that an agent, which counts the same way, sees our answer before it gives up. Time that the
/// request waited in a queue before its last byte was read counts too. The limit
/// `idle` counts from the last byte that the member took; while the client sends nothing, its own silence is limited, not
/// the member's.
///
pub(crate) async fn first_byte<T>(
    mut sent: Pin<&mut impl Future<Output = T>>,
    upload: &Upload,
    limits: Limits,
    (response_timer, began): (&ResponseTimer, Instant),
    WaitHooks { long, elsewhere }: WaitHooks<'_>,
) -> Result<T, NoResponse> {
    let first_limit = limits.first_byte.min(limits.idle);
    // All requests of a connection begin with the same interval, so that its timer is only ever put off.
    let mut timer = response_timer.set(began + first_limit.min(MEMBER_LOOK_INTERVAL));
    loop {
        tokio::select! {
            biased;
            answer = sent.as_mut() => {
                response_timer.put_back(timer);
                return Ok(answer);
            }
            () = timer.as_mut() => {
                let answer_limit = limits.first_byte.saturating_sub(upload.time_in_queue_incomplete());
                let (limit, waited, silence) = match upload.finished() {
                    Some(finished) => (answer_limit, finished.elapsed(), NoResponse::Late),
                    None => (limits.idle, upload.untaken(), NoResponse::Stalled),
                };
                if waited >= limit {
                    return Err(silence);
                }
                long();
                let mut wait = limit - waited;
                if upload.finished().is_none() {
                    // The body may be complete right after this look.
                    wait = wait.min(answer_limit.max(MEMBER_LOOK_INTERVAL));
                }
                if let Some(elsewhere) = elsewhere {
                    if let Some(lease) = elsewhere() {
                        return Err(NoResponse::Moved(lease));
                    }
                    wait = wait.min(MEMBER_LOOK_INTERVAL);
                }
                timer.as_mut().reset(Instant::now() + wait);
            }
        }
    }
}
