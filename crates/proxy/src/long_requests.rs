//! Requests that have waited several seconds for their response. The status shows them, because an operator who drains a member
//! must know what still runs there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// The requests by member and an increasing number. The members' limits bound the size.
#[derive(Debug, Default)]
pub struct LongRequests(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    requests: BTreeMap<(u64, u64), LongRequest>,
}

/// A request that has waited several seconds for a response, or had to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongRequest {
    /// The client's verified certname, or its address.
    pub client: Arc<str>,
    /// Method and path, at most 200 characters.
    pub request: String,
    /// When its head arrived.
    pub since: SystemTime,
}

/// Maximum characters of method and path.
pub(crate) const REQUEST_CHARS_MAX: usize = 200;

/// A request in the list of long requests. Dropping this value removes it.
#[derive(Debug)]
pub(crate) struct LongRequestEntry {
    all: Arc<LongRequests>,
    key: (u64, u64),
}

impl LongRequests {
    pub(crate) fn note(self: &Arc<Self>, member: u64, request: LongRequest) -> LongRequestEntry {
        let mut known = self.lock();
        let key = (member, known.next);
        known.next += 1;
        known.requests.insert(key, request);
        LongRequestEntry {
            all: Arc::clone(self),
            key,
        }
    }

    /// The oldest requests at this member, at most `max`.
    pub fn at(&self, member: u64, max: usize) -> Vec<LongRequest> {
        let known = self.lock();
        let requests = known.requests.range((member, 0)..=(member, u64::MAX));
        let mut requests: Vec<_> = requests.map(|(_, request)| request).collect();
        requests.sort_by_key(|request| request.since);
        requests.into_iter().take(max).cloned().collect()
    }

    /// The oldest requests at all members, at most `max`, each with its member.
    pub fn oldest(&self, max: usize) -> Vec<(u64, LongRequest)> {
        let known = self.lock();
        let requests = known.requests.iter();
        let mut requests: Vec<_> = requests
            .map(|((member, _), request)| (*member, request))
            .collect();
        requests.sort_by_key(|(_, request)| request.since);
        let oldest = requests.into_iter().take(max);
        oldest
            .map(|(member, request)| (member, request.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LongRequestEntry {
    fn drop(&mut self) {
        self.all.lock().requests.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_requests_of_a_member_are_named_while_they_run() {
        let all = Arc::new(LongRequests::default());
        let request = |seconds| LongRequest {
            client: "web01".into(),
            request: "GET /".to_owned(),
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let newer = all.note(1, request(2));
        let older = all.note(1, request(1));
        let other = all.note(2, request(3));
        assert_eq!(all.at(1, 1), [request(1)]);
        assert_eq!(all.at(2, 9), [request(3)]);
        assert_eq!(all.oldest(2), [(1, request(1)), (1, request(2))]);
        drop(older);
        assert_eq!(all.at(1, 9), [request(2)]);
        drop((newer, other));
        assert!(all.lock().requests.is_empty());
    }
}
