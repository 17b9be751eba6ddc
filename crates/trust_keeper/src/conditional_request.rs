//! Decides when a document may be requested with `If-Modified-Since`: only if "not modified" cannot hide a change.
//!
//! HTTP dates have whole seconds. If a document changes twice within one second, both versions have the same date, and a proxy
//! that has the first version would never get the second. The proxy therefore uses a date only if it is some seconds old. It
//! also requests the whole document at intervals, because an operator may restore a file with an old date.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use http::HeaderValue;

use state::http_date::date;

/// Minimum age of a document by the member's clock, for the proxy to use the document's date.
const AGE_MIN: Duration = Duration::from_secs(5);

/// What the proxy knows about the document that it fetched last.
#[derive(Debug, Default)]
pub(crate) struct ConditionalRequest {
    last: Option<DatedDocument>,
    /// When the whole document was fetched last.
    whole_at: Option<Instant>,
}

#[derive(Debug)]
struct DatedDocument {
    member: Arc<str>,
    /// `Last-Modified` as the member sent it.
    last_modified: HeaderValue,
    modified: SystemTime,
    /// When the member last sent or confirmed the document, by the member's clock.
    confirmed: SystemTime,
}

impl ConditionalRequest {
    /// The date for `If-Modified-Since`. `None` if the whole document must be requested.
    pub(crate) fn if_modified_since(
        &self,
        member: &str,
        now: Instant,
        full_interval: Duration,
    ) -> Option<HeaderValue> {
        let last = self.last.as_ref()?;
        // On another member, the file has another date.
        let is_same = *last.member == *member;
        let age = last.confirmed.duration_since(last.modified).ok();
        let is_old = age.is_some_and(|age| age >= AGE_MIN);
        let is_recent = self
            .whole_at
            .is_some_and(|at| now.duration_since(at) < full_interval);
        (is_same && is_old && is_recent).then(|| last.last_modified.clone())
    }

    /// Notes that a whole, valid document was fetched. `requested` is the time of the request by the proxy's clock.
    pub(crate) fn fetched_whole(
        &mut self,
        member: &Arc<str>,
        response: &upstream::FetchedDocument,
        requested: SystemTime,
        now: Instant,
    ) {
        self.whole_at = Some(now);
        let last = response.last_modified.as_ref().and_then(|text| {
            Some(DatedDocument {
                member: Arc::clone(member),
                last_modified: text.clone(),
                modified: date(text)?,
                confirmed: response.date.as_ref().and_then(date).unwrap_or(requested),
            })
        });
        self.last = last;
    }

    /// Notes that the document has not changed.
    pub(crate) fn not_modified(
        &mut self,
        response: &upstream::FetchedDocument,
        requested: SystemTime,
    ) {
        if let Some(last) = &mut self.last {
            last.confirmed = response.date.as_ref().and_then(date).unwrap_or(requested);
        }
    }

    /// Forgets the document, so that the next request is for the whole one.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const MODIFIED: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

    fn response(last_modified: Option<&str>, date: Option<&str>) -> upstream::FetchedDocument {
        let field = |text: Option<&str>| text.map(|text| HeaderValue::from_str(text).unwrap());
        upstream::FetchedDocument {
            body: None,
            last_modified: field(last_modified),
            date: field(date),
        }
    }

    fn after(last_modified: Option<&str>, date: Option<&str>) -> (ConditionalRequest, Instant) {
        let (mut request, now) = (ConditionalRequest::default(), Instant::now());
        let requested = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        request.fetched_whole(
            &"ca:8140".into(),
            &response(last_modified, date),
            requested,
            now,
        );
        (request, now)
    }

    #[test]
    fn a_date_counts_once_it_is_five_seconds_old_by_the_members_clock() {
        for (last_modified, date, is_conditional) in [
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:00 GMT"), false),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:04 GMT"), false),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:05 GMT"), true),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 09:59:00 GMT"), false),
            // If the member sends no date, the proxy's clock is used.
            (Some(MODIFIED), None, true),
            (Some("Sat, 21 Nov 2026 11:59:58 GMT"), None, false),
            (Some("yesterday"), None, false),
            (None, None, false),
        ] {
            let (request, now) = after(last_modified, date);
            let expected = is_conditional.then(|| HeaderValue::from_static(MODIFIED));
            let condition = request.if_modified_since("ca:8140", now, HOUR);
            assert_eq!(condition, expected, "{last_modified:?} {date:?}");
        }
    }

    #[test]
    fn a_not_modified_response_makes_the_date_older() {
        let (mut request, now) = after(Some(MODIFIED), Some(MODIFIED));
        assert!(request.if_modified_since("ca:8140", now, HOUR).is_none());
        let later = response(None, Some("Sat, 21 Nov 2026 10:00:30 GMT"));
        request.not_modified(&later, SystemTime::now());
        assert!(request.if_modified_since("ca:8140", now, HOUR).is_some());
    }

    #[test]
    fn the_whole_document_is_requested_from_another_member_and_once_an_hour() {
        let (mut request, now) = after(Some(MODIFIED), None);
        assert!(request.if_modified_since("ca2:8140", now, HOUR).is_none());
        let almost = now + HOUR - Duration::from_secs(1);
        assert!(request.if_modified_since("ca:8140", almost, HOUR).is_some());
        assert!(
            request
                .if_modified_since("ca:8140", now + HOUR, HOUR)
                .is_none()
        );
        request.forget();
        assert!(request.if_modified_since("ca:8140", now, HOUR).is_none());
    }
}
