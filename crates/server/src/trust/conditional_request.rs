//! When a list may be asked for by its date: only while "not modified since" can hide no change.
//!
//! Dates in HTTP have whole seconds. A list that is changed twice within one keeps its date, and who has the first asks
//! for "newer than that" in vain; so a date counts only once it lies some seconds back. And once in a while the list is
//! asked for whole, since files are put back with old dates too.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use http::HeaderValue;

use crate::http_date::date;

/// How far a list's date has to lie back, by its member's clock, for it to count.
const AGE_MIN: Duration = Duration::from_secs(5);

/// What is known of the last list that came.
#[derive(Debug, Default)]
pub(crate) struct Validator {
    known: Option<Known>,
    whole_at: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    member: Arc<str>,
    /// As the member spelled it.
    last_modified: HeaderValue,
    modified: SystemTime,
    /// When the member last said so, by its clock.
    said: SystemTime,
}

impl Validator {
    /// The date to ask a member with; none: it is asked for the whole list.
    pub(crate) fn condition(
        &self,
        member: &str,
        now: Instant,
        full_interval: Duration,
    ) -> Option<HeaderValue> {
        let known = self.known.as_ref()?;
        // Another member's file has another date.
        let is_same = *known.member == *member;
        let age = known.said.duration_since(known.modified).ok();
        let is_old = age.is_some_and(|age| age >= AGE_MIN);
        let is_recent = self
            .whole_at
            .is_some_and(|at| now.duration_since(at) < full_interval);
        (is_same && is_old && is_recent).then(|| known.last_modified.clone())
    }

    /// Notes a whole list that is of use; `asked` is our clock before the member was asked.
    pub(crate) fn came(
        &mut self,
        member: &Arc<str>,
        answer: &upstream::FetchedDocument,
        asked: SystemTime,
        now: Instant,
    ) {
        self.whole_at = Some(now);
        let known = answer.last_modified.as_ref().and_then(|text| {
            Some(Known {
                member: Arc::clone(member),
                last_modified: text.clone(),
                modified: date(text)?,
                said: answer.date.as_ref().and_then(date).unwrap_or(asked),
            })
        });
        self.known = known;
    }

    /// Notes that the list is still the same.
    pub(crate) fn stays(&mut self, answer: &upstream::FetchedDocument, asked: SystemTime) {
        if let Some(known) = &mut self.known {
            known.said = answer.date.as_ref().and_then(date).unwrap_or(asked);
        }
    }

    /// Forgets it all: the next list is asked for whole.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const MODIFIED: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

    fn answer(last_modified: Option<&str>, date: Option<&str>) -> upstream::FetchedDocument {
        let field = |text: Option<&str>| text.map(|text| HeaderValue::from_str(text).unwrap());
        upstream::FetchedDocument {
            body: None,
            last_modified: field(last_modified),
            date: field(date),
        }
    }

    fn after(last_modified: Option<&str>, date: Option<&str>) -> (Validator, Instant) {
        let (mut validator, now) = (Validator::default(), Instant::now());
        let asked = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        validator.came(&"ca:8140".into(), &answer(last_modified, date), asked, now);
        (validator, now)
    }

    #[test]
    fn a_date_counts_once_it_lies_five_seconds_back_by_the_members_clock() {
        for (last_modified, date, is_asked_with) in [
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:00 GMT"), false),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:04 GMT"), false),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 10:00:05 GMT"), true),
            (Some(MODIFIED), Some("Sat, 21 Nov 2026 09:59:00 GMT"), false),
            // Without a clock of the member's, ours.
            (Some(MODIFIED), None, true),
            (Some("Sat, 21 Nov 2026 11:59:58 GMT"), None, false),
            (Some("yesterday"), None, false),
            (None, None, false),
        ] {
            let (validator, now) = after(last_modified, date);
            let expected = is_asked_with.then(|| HeaderValue::from_static(MODIFIED));
            let condition = validator.condition("ca:8140", now, HOUR);
            assert_eq!(condition, expected, "{last_modified:?} {date:?}");
        }
    }

    #[test]
    fn an_answer_that_nothing_has_changed_makes_the_date_older() {
        let (mut validator, now) = after(Some(MODIFIED), Some(MODIFIED));
        assert!(validator.condition("ca:8140", now, HOUR).is_none());
        let later = answer(None, Some("Sat, 21 Nov 2026 10:00:30 GMT"));
        validator.stays(&later, SystemTime::now());
        assert!(validator.condition("ca:8140", now, HOUR).is_some());
    }

    #[test]
    fn the_list_is_asked_for_whole_of_another_member_and_once_an_hour() {
        let (mut validator, now) = after(Some(MODIFIED), None);
        assert!(validator.condition("ca2:8140", now, HOUR).is_none());
        let almost = now + HOUR - Duration::from_secs(1);
        assert!(validator.condition("ca:8140", almost, HOUR).is_some());
        assert!(validator.condition("ca:8140", now + HOUR, HOUR).is_none());
        validator.forget();
        assert!(validator.condition("ca:8140", now, HOUR).is_none());
    }
}
