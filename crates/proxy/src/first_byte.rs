//! The wait for the head of a member's response.

use std::{pin::Pin, time::Duration};

use tokio::time::Instant;

use crate::{pool_runtime::PoolLease, response_timer::ResponseTimer, upload::Upload};

/// How often a waiting request checks whether its member has failed. Nearly all responses arrive before the first check, so the
/// check costs their requests nothing.
const MEMBER_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Limits on the silence of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum time from the request's last byte, including all attempts and waits for connections.
    pub(crate) first_byte: Duration,
    /// Maximum time since the member last read a byte of the body, while there are more.
    pub(crate) idle: Duration,
}

/// Functions that are called from time to time while a member does not respond.
pub(crate) struct WaitHooks<'a> {
    /// Notes that the response takes long.
    pub(crate) long: &'a dyn Fn(),
    /// Picks another member. `None`: the request may not move to another member.
    pub(crate) elsewhere: Option<&'a dyn Fn() -> Option<PoolLease>>,
}

pub(crate) enum NoResponse {
    /// The response did not arrive within the limit.
    Late,
    /// The member did not read the body for too long.
    Stalled,
    /// The member failed. This lease is for another member that can take the request.
    Moved(PoolLease),
}

/// Waits for the head of a response.
///
/// The time for `first_byte` counts from the request's last byte and not from the start of this attempt. An agent counts in the
/// same way, so it gets the proxy's response before it gives up. Time in a queue before that last byte was read counts too.
/// counts too.
/// The time for `idle` counts from the last byte that the member read. While the client sends nothing, another limit applies to
/// the client's silence.
/// silence is limited instead.
pub(crate) async fn first_byte<T>(
    mut sent: Pin<&mut impl Future<Output = T>>,
    upload: &Upload,
    limits: Limits,
    (response_timer, began): (&ResponseTimer, Instant),
    WaitHooks { long, elsewhere }: WaitHooks<'_>,
) -> Result<T, NoResponse> {
    let first_limit = limits.first_byte.min(limits.idle);
    // All requests of a connection start with the same interval, so the timer of the connection is only ever postponed.
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
                    None => (limits.idle, upload.stalled_for(), NoResponse::Stalled),
                };
                if waited >= limit {
                    return Err(silence);
                }
                long();
                let mut wait = limit - waited;
                if upload.finished().is_none() {
                    // The body may be complete soon after this check, and then the other limit applies.
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
