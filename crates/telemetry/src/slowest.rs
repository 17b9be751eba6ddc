//! The slowest requests of the last hours, for the operator. Their number is bounded, and they are in memory only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::record::AccessRecord;

/// The slowest requests of this hour and of the hour before.
#[derive(Debug, Default)]
pub struct SlowestRequests(Mutex<Hours>);

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// The client's verified certname, or its address.
    pub client: Arc<str>,
    /// Method and path, at most 200 characters.
    pub request: String,
    /// The member of the last attempt.
    pub member: Option<Arc<str>>,
    /// The status code.
    pub status: u16,
    /// When it arrived.
    pub when: SystemTime,
    /// The time from the request's head to the last byte of the response.
    pub took: Duration,
}

#[derive(Debug, Default)]
struct Hours {
    /// The hour to which `current` belongs, counted from the start.
    hour: u64,
    current: Vec<SlowRequest>,
    previous: Vec<SlowRequest>,
}

impl SlowestRequests {
    /// Maximum number of requests for each hour.
    pub const REQUESTS_MAX: usize = 50;
    /// A faster request is never listed, so it costs only one comparison.
    pub const MINIMUM: Duration = Duration::from_secs(1);

    /// Lists a request that has ended if it is one of the slowest. `since_start` is the age of the process.
    pub fn note(&self, took: Duration, since_start: Duration, record: &AccessRecord) {
        if took < Self::MINIMUM {
            return;
        }
        let mut hours = self.hours(since_start);
        let shorter = hours.current.partition_point(|known| known.took >= took);
        if shorter >= Self::REQUESTS_MAX {
            return;
        }
        hours.current.truncate(Self::REQUESTS_MAX - 1);
        hours.current.insert(shorter, SlowRequest::of(took, record));
    }

    /// The listed requests, the slowest first.
    pub fn list(&self, since_start: Duration) -> Vec<SlowRequest> {
        let hours = self.hours(since_start);
        let mut requests = [hours.current.as_slice(), &hours.previous].concat();
        requests.sort_by_key(|request| std::cmp::Reverse(request.took));
        requests.truncate(Self::REQUESTS_MAX);
        requests
    }

    fn hours(&self, since_start: Duration) -> MutexGuard<'_, Hours> {
        let mut hours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hour = since_start.as_secs() / 3600;
        if hour > hours.hour {
            let ended = std::mem::take(&mut hours.current);
            hours.previous = if hour == hours.hour + 1 {
                ended
            } else {
                Vec::new()
            };
            hours.hour = hour;
        }
        hours
    }
}

impl SlowRequest {
    fn of(took: Duration, record: &AccessRecord) -> Self {
        let fields = &record.request_fields;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (method, target) = (text(fields.method().bytes), text(fields.target().bytes));
        // A query may contain facts of the agent, and the path identifies the request well enough.
        let path = target.split('?').next().unwrap_or_default();
        let request = format!("{method} {path}");
        let address = || record.client.ip().to_canonical().to_string().into();
        Self {
            client: record.certname.clone().unwrap_or_else(address),
            request: request.chars().take(REQUEST_CHARS_MAX).collect(),
            member: record.member.clone(),
            status: record.status.unwrap_or(499),
            when: record.when,
            took,
        }
    }
}

/// Maximum characters of method and path.
const REQUEST_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestFields, RequestFieldsCopy};

    #[test]
    fn the_slowest_requests_of_two_hours_are_listed_and_no_fast_one() {
        let slowest = SlowestRequests::default();
        let client = ([192, 0, 2, 7], 1).into();
        let mut record = AccessRecord::new(SystemTime::UNIX_EPOCH, "agents".into(), client);
        record.request_fields = RequestFieldsCopy::of(&RequestFields {
            method: Some(b"GET"),
            target: Some(b"/a?b"),
            ..RequestFields::default()
        });
        let hour = Duration::from_secs(3600);
        let seconds = Duration::from_secs;
        slowest.note(Duration::from_millis(999), seconds(0), &record);
        assert!(slowest.list(seconds(0)).is_empty());
        for took in 1..=60 {
            slowest.note(seconds(took), seconds(0), &record);
        }
        let listed = slowest.list(seconds(0));
        assert_eq!(listed.len(), SlowestRequests::REQUESTS_MAX);
        assert_eq!(listed[0].took, seconds(60));
        assert_eq!(listed[0].request, "GET /a");
        assert_eq!(&*listed[0].client, "192.0.2.7");
        slowest.note(seconds(2), hour, &record);
        assert_eq!(slowest.list(hour).len(), SlowestRequests::REQUESTS_MAX);
        assert_eq!(slowest.list(2 * hour).len(), 1);
        assert!(slowest.list(4 * hour).is_empty());
    }
}
