//! A member's limit on requests, learned from responses that refuse a request because the member's queue is full. Pure: time is
//! an argument.

use std::{
    fmt,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// Signs of overload in a member's responses and status.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// Maximum attempts in flight that hold a JRuby. 0: not learned.
    limit: AtomicU32,
    answers: AtomicU32,
    /// Milliseconds since start at which the member last refused a request. 0: never.
    refused_at_ms: AtomicU64,
    /// Milliseconds since start until which the member gets no requests. 0: it may get requests.
    paused_until_ms: AtomicU64,
    /// The cause that the status service shows, as the number of an [`OverloadCause`] plus 1. 0: none.
    shown: AtomicU8,
}

/// Why a member counts as overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadCause {
    /// The member refused a request from the proxy because its own queue is full.
    QueueFull,
    /// Its status service shows that it refused requests because its queue is full.
    QueueLimit,
    /// Its status service shows that requests waited too long for a JRuby.
    BorrowTimeout,
    /// Its status service shows that no JRuby is idle and that requests wait for a JRuby longer than they use it.
    JrubyWait,
}

impl Overload {
    /// Records that the member refused a request because its own queue is full. `working`: attempts in flight that hold a
    /// JRuby, including the refused one. False: the member was overloaded already.
    ///
    /// The other attempts were accepted, or will be refused and lower the limit further. So the member gets no request before
    /// one of them finishes. If there are no other attempts, the load comes from elsewhere, and the member gets no request for
    /// a second.
    pub(crate) fn refused(&self, working: u32, now: Duration) -> bool {
        let is_new = !self.is_recent(now);
        let others = working.saturating_sub(1);
        let lower = |limit: u32| {
            Some(
                if limit == 0 {
                    others
                } else {
                    limit.min(others)
                }
                .max(1),
            )
        };
        let _ = self
            .limit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        self.answers.store(0, Ordering::Relaxed);
        self.refused_at_ms.store(millis(now), Ordering::Relaxed);
        if others == 0 {
            let until = millis(now + PAUSE);
            self.paused_until_ms.store(until, Ordering::Relaxed);
        }
        is_new
    }

    /// Records a response that shows room in the member's queue. Several such responses raise the limit by one.
    pub(crate) fn answered(&self) {
        let limit = self.limit();
        if limit == 0 {
            return;
        }
        let answers = self.answers.fetch_add(1, Ordering::Relaxed) + 1;
        if answers >= limit.saturating_mul(GROWTH_ANSWERS) {
            self.answers.store(0, Ordering::Relaxed);
            // If a refusal has lowered the limit meanwhile, the lower limit stays.
            let (relaxed, raised) = (Ordering::Relaxed, limit.saturating_add(1));
            let _ = self.limit.compare_exchange(limit, raised, relaxed, relaxed);
        }
    }

    /// Removes a limit that no refusal has confirmed for a long time. Responses alone may not raise it, because the requests in
    /// flight may be tunnels, whose traffic does not count.
    pub(crate) fn expire(&self, now: Duration) {
        let refused_at = self.refused_at_ms.load(Ordering::Relaxed);
        if self.limit() != 0 && millis(now).saturating_sub(refused_at) >= LIMIT_LASTS_MS {
            self.limit.store(0, Ordering::Relaxed);
        }
    }

    /// Copies the state of a member that is the same server under another name.
    pub(crate) fn take_over(&self, other: &Self) {
        self.limit.store(other.limit(), Ordering::Relaxed);
        let refused_at = other.refused_at_ms.load(Ordering::Relaxed);
        self.refused_at_ms.store(refused_at, Ordering::Relaxed);
    }

    /// Maximum attempts in flight that hold a JRuby. 0: not learned.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Until when the member gets no requests, in milliseconds since start. 0: it may get requests.
    pub(crate) fn paused_until_ms(&self) -> u64 {
        self.paused_until_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        self.has_paused() && millis(now) < self.paused_until_ms()
    }

    /// Whether a pause has begun and was not ended yet.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused_until_ms() != 0
    }

    pub(crate) fn end_pause(&self) {
        self.paused_until_ms.store(0, Ordering::Relaxed);
    }

    /// Sets the cause that the status service shows. True: this cause was not shown before.
    pub(crate) fn show(&self, cause: Option<OverloadCause>) -> bool {
        let shown = cause.map_or(0, |cause| cause as u8 + 1);
        self.shown.swap(shown, Ordering::Relaxed) != shown && cause.is_some()
    }

    pub(crate) fn cause(&self, now: Duration) -> Option<OverloadCause> {
        if self.is_recent(now) {
            return Some(OverloadCause::QueueFull);
        }
        let shown = self.shown.load(Ordering::Relaxed);
        let mut causes = OverloadCause::SHOWN.into_iter();
        causes.find(|cause| *cause as u8 + 1 == shown)
    }

    /// Resets everything, because the server was restarted.
    pub(crate) fn forget(&self) {
        self.limit.store(0, Ordering::Relaxed);
        self.refused_at_ms.store(0, Ordering::Relaxed);
        self.shown.store(0, Ordering::Relaxed);
        self.end_pause();
    }

    fn is_recent(&self, now: Duration) -> bool {
        let refused_at = self.refused_at_ms.load(Ordering::Relaxed);
        refused_at != 0 && millis(now).saturating_sub(refused_at) < RECENT_MS
    }
}

impl OverloadCause {
    const SHOWN: [Self; 3] = [Self::QueueLimit, Self::BorrowTimeout, Self::JrubyWait];

    /// The word in the API and in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::QueueLimit => "queue-limit",
            Self::BorrowTimeout => "borrow-timeout",
            Self::JrubyWait => "jruby-wait",
        }
    }
}

impl fmt::Display for OverloadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Never 0, because 0 means "never".
fn millis(since_start: Duration) -> u64 {
    u64::try_from(since_start.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// How long a member gets no requests after it refused its only request.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of responses, for each request of the limit, that raise the limit by one. At worst, one request in this number is
/// refused.
const GROWTH_ANSWERS: u32 = 8;
/// How long the limit applies after the last refusal.
const LIMIT_LASTS_MS: u64 = 600_000;
/// How long a member counts as overloaded after a refusal.
const RECENT_MS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_teaches_the_number_of_requests_that_were_accepted() {
        let overload = Overload::default();
        // 14 of 100 attempts are accepted. Each refused attempt is given back before the next one is refused.
        for working in (15..=100).rev() {
            assert_eq!(overload.refused(working, at(1)), working == 100);
        }
        assert_eq!(overload.limit(), 14);
        assert!(!overload.is_paused(at(1)), "one of the 14 ends first");
        assert!(!overload.refused(20, at(2)));
        assert_eq!(overload.limit(), 14, "sent before the limit was known");
    }

    #[test]
    fn answers_raise_the_limit_one_by_one_and_a_restart_removes_it() {
        let overload = Overload::default();
        (0..1_000).for_each(|_| overload.answered());
        assert_eq!(overload.limit(), 0);
        overload.refused(3, at(1));
        let raised = |after: u32| {
            let before = overload.limit();
            (1..after).for_each(|_| overload.answered());
            assert_eq!(overload.limit(), before);
            overload.answered();
            overload.limit()
        };
        assert_eq!(raised(16), 3);
        assert_eq!(raised(24), 4);
        (0..31).for_each(|_| overload.answered());
        overload.refused(5, at(2));
        assert_eq!(raised(32), 5, "answers before a refusal do not count");
        overload.forget();
        assert_eq!((overload.limit(), overload.cause(at(2))), (0, None));
    }

    #[test]
    fn a_limit_expires_without_further_refusals() {
        let overload = Overload::default();
        overload.refused(3, at(1));
        overload.refused(3, at(500));
        overload.expire(at(1_099));
        assert_eq!(overload.limit(), 2);
        overload.expire(at(1_100));
        assert_eq!(overload.limit(), 0);
    }

    #[test]
    fn a_member_that_refuses_its_only_request_gets_none_for_a_second() {
        let overload = Overload::default();
        for round in 0..10 {
            overload.refused(1, at(round));
            assert_eq!(overload.limit(), 1);
            assert!(overload.is_paused(at(round)));
            assert!(overload.is_paused(at(round) + Duration::from_millis(999)));
            assert!(!overload.is_paused(at(round + 1)), "never longer");
        }
    }

    #[test]
    fn a_refusal_counts_for_30_seconds_and_overrides_the_shown_cause() {
        let overload = Overload::default();
        for cause in OverloadCause::SHOWN {
            assert!(overload.show(Some(cause)));
            assert!(!overload.show(Some(cause)));
            assert_eq!(overload.cause(at(1)), Some(cause));
        }
        assert!(overload.refused(9, at(100)));
        assert_eq!(overload.cause(at(129)), Some(OverloadCause::QueueFull));
        assert_eq!(overload.cause(at(130)), Some(OverloadCause::JrubyWait));
        assert!(!overload.show(None));
        assert_eq!(overload.cause(at(130)), None);
        assert!(overload.refused(9, at(130)));
    }
}
