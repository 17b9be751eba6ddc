//! Dates in the responses of members, and how far a member's clock is from ours.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

/// A date in any of the three forms that RFC 9110, 5.6.7, allows.
pub(crate) fn date(text: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(text.to_str().ok()?).ok()
}

/// The member's clock, as its `Date` shows it, minus ours, in whole seconds; none if that is not a date.
pub fn clock_offset(text: &HeaderValue, ours: SystemTime) -> Option<i64> {
    let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Some(match date(text)?.duration_since(ours) {
        Ok(ahead) => whole(ahead),
        Err(behind) => -whole(behind.duration()),
    })
}
