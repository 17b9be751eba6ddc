//! The time as the Date field says it (RFC 9110, 5.6.7), for answers that HTTP/2 would send without.

use http::HeaderValue;
use time::{OffsetDateTime, macros::format_description};

/// Now.
pub(crate) fn now() -> HeaderValue {
    let form = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    OffsetDateTime::now_utc()
        .format(&form)
        .ok()
        .and_then(|text| HeaderValue::try_from(text).ok())
        .expect("a date is plain ASCII")
}
