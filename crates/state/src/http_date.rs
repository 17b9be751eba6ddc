//! Dates in responses of members, and the offset of a member's clock.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

/// Parses a date in any of the three forms of RFC 9110, section 5.6.7.
pub fn date(text: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(text.to_str().ok()?).ok()
}

/// The member's clock in its `Date` minus the proxy's clock, in whole seconds. `None` if it is not a date.
pub fn clock_offset(text: &HeaderValue, ours: SystemTime) -> Option<i64> {
    let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Some(match date(text)?.duration_since(ours) {
        Ok(ahead) => whole(ahead),
        Err(behind) => -whole(behind.duration()),
    })
}
