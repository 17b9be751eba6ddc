//! The `Date` field (RFC 9110, 5.6.7) of responses over HTTP/2 that have none.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use http::HeaderValue;

/// The value of `Date` as a worker last rendered it. It is rendered at most once a second.
#[derive(Debug, Default)]
pub(crate) struct ResponseDate(RefCell<Option<Rendered>>);

#[derive(Debug)]
struct Rendered {
    /// Unix time.
    second: u64,
    value: HeaderValue,
}

/// The last second that the format can express, because the year has four digits.
const SECOND_MAX: u64 = 253_402_300_799;

impl ResponseDate {
    /// The value at this time. A time before 1970, from a clock that was never set, counts as 1970.
    pub(crate) fn at(&self, now: SystemTime) -> HeaderValue {
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let second = since.unwrap_or_default().as_secs().min(SECOND_MAX);
        let mut rendered = self.0.borrow_mut();
        if let Some(rendered) = &*rendered
            && rendered.second == second
        {
            return rendered.value.clone();
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let text = httpdate::fmt_http_date(time);
        let value = HeaderValue::try_from(text).expect("a date is plain ASCII");
        *rendered = Some(Rendered {
            second,
            value: value.clone(),
        });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_rendered_for_each_second_within_the_years_that_have_four_digits() {
        let date = ResponseDate::default();
        let at = |seconds: f64| {
            let value = date.at(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds));
            value.to_str().expect("a date is plain ASCII").to_owned()
        };
        for (seconds, expected) in [
            (0.0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777.0, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777.9, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778.0, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (300_000_000_000.0, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(at(seconds), expected);
        }
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(date.at(before_1970), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
