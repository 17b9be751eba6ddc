//! Whose clock is wrong: dates of certificates and lists mean nothing to a machine that lives in another hour.

use http::{HeaderMap, header};
use rustls_pki_types::UnixTime;
use time::{PrimitiveDateTime, macros::format_description};

use super::{Check, Grade, Proof};

/// Seconds between two clocks that nobody notices.
const SKEW_GOOD_MAX: i64 = 30;
/// Seconds from which on fresh certificates and lists are not valid yet somewhere.
const SKEW_BEARABLE_MAX: i64 = 300;

/// Holds a member's Date against our own clock.
pub(super) fn examine(about: &str, headers: &HeaderMap, now: UnixTime, proof: &mut Proof) {
    let Some(theirs) = date(headers) else {
        return;
    };
    let ours = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let ahead = theirs.saturating_sub(ours);
    let grade = match ahead.abs() {
        skew if skew <= SKEW_GOOD_MAX => return proof.passed(Check::Clock, about),
        skew if skew <= SKEW_BEARABLE_MAX => Grade::Warning,
        _ => Grade::Failure,
    };
    let (by, way) = match ahead > 0 {
        true => (ahead, "ahead of"),
        false => (ahead.saturating_neg(), "behind"),
    };
    proof.found(
        Check::Clock,
        grade,
        about,
        format!("its clock is {by} s {way} ours: what one calls valid the other calls expired, or not valid yet"),
        "set both by NTP: `timedatectl` on both hosts says which one is not synchronised",
    );
}

/// The Date field (RFC 9110, 5.6.7) in seconds since 1970.
fn date(headers: &HeaderMap) -> Option<i64> {
    let form = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let text = headers.get(header::DATE)?.to_str().ok()?;
    let instant = PrimitiveDateTime::parse(text, &form).ok()?;
    Some(instant.assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_clock_is_judged_by_the_date_that_a_member_says() {
        let ours = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        for (text, expected) in [
            ("Tue, 14 Nov 2023 22:13:20 GMT", None),
            ("Tue, 14 Nov 2023 22:12:55 GMT", None),
            ("Tue, 14 Nov 2023 22:15:20 GMT", Some(Grade::Warning)),
            ("Tue, 14 Nov 2023 20:13:20 GMT", Some(Grade::Failure)),
            ("yesterday", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, HeaderValue::from_static(text));
            let mut proof = Proof::default();
            examine("c1", &headers, ours, &mut proof);
            assert_eq!(proof.worst(), expected, "{text}");
        }
    }
}
