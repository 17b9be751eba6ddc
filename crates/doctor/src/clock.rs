//! Wrong clocks: a machine with a wrong time misinterprets the dates of certificates and CRLs.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};
use proxy::CLOCK_OFFSET_MAX;
use rustls_pki_types::UnixTime;

use crate::{Check, DoctorReport, FindingSeverity};
use lifecycle::clock_offset;

/// Maximum difference between two clocks, in seconds, that has no effect.
const SKEW_GOOD_MAX: u64 = 30;

/// Compares a member's Date with the clock of this host.
pub(crate) fn examine(about: &str, headers: &HeaderMap, now: UnixTime, report: &mut DoctorReport) {
    let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
    let date = headers.get(header::DATE);
    let Some(ahead) = date.and_then(|date| clock_offset(date, ours)) else {
        return;
    };
    let grade = match ahead.unsigned_abs() {
        skew if skew <= SKEW_GOOD_MAX => return report.passed(Check::Clock, about),
        skew if skew <= CLOCK_OFFSET_MAX => FindingSeverity::Warning,
        _ => FindingSeverity::Failure,
    };
    let (by, way) = if ahead > 0 {
        (ahead, "ahead of")
    } else {
        (ahead.saturating_neg(), "behind")
    };
    report.found(
        Check::Clock,
        grade,
        about,
        format!("its clock is {by} s {way} the clock of this host, so a certificate that is valid on one host can be expired or not valid yet on the other"),
        "synchronize both clocks with NTP; `timedatectl` on each host shows whether it is synchronized",
    );
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_clock_is_compared_by_the_date_of_a_member() {
        let ours = UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
        for (text, expected) in [
            ("Tue, 14 Nov 2023 22:13:20 GMT", None),
            ("Tue, 14 Nov 2023 22:12:55 GMT", None),
            (
                "Tue, 14 Nov 2023 22:15:20 GMT",
                Some(FindingSeverity::Warning),
            ),
            (
                "Tue, 14 Nov 2023 20:13:20 GMT",
                Some(FindingSeverity::Failure),
            ),
            ("yesterday", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, HeaderValue::from_static(text));
            let mut report = DoctorReport::default();
            examine("c1", &headers, ours, &mut report);
            assert_eq!(report.worst(), expected, "{text}");
        }
    }
}
