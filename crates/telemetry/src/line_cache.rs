//! The part of a log line that is the same for all requests with the same route, class, kind of work, pool and member.
//!
//! An estate has few such combinations, several for each member, so the text of each is formatted once and then copied.

use std::sync::Arc;

use balancing::Work;

use crate::record::AccessRecord;

/// Maximum number of cached combinations: several for each of a hundred members. A text needs about 250 bytes.
const CACHED_TEXTS_MAX: usize = 1_024;

/// Number of places in which the text of a combination may be. If other texts use all of them, the first place is overwritten.
/// With a single place, two members that map to the same place would be formatted again for each request.
const PLACES: usize = 8;

/// The cached texts of one writer.
#[derive(Debug)]
pub(crate) struct LineCache(Box<[Option<Box<CachedText>>]>);

#[derive(Debug)]
struct CachedText {
    way: Combination,
    text: Vec<u8>,
}

/// The names of a combination. They are compared by address. The cache holds the names, so no other name can get the same
/// address.
#[derive(Debug)]
struct Combination {
    route: Arc<str>,
    class: &'static str,
    work: Work,
    pool: Arc<str>,
    member: Arc<str>,
}

impl Default for LineCache {
    fn default() -> Self {
        Self((0..CACHED_TEXTS_MAX).map(|_| None).collect())
    }
}

impl LineCache {
    /// The text of the record's combination. `write` formats it if it is not cached. `None` if no member got the request.
    pub(crate) fn text(
        &mut self,
        record: &AccessRecord,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&[u8]> {
        let (route, pool) = (record.route.as_ref()?, record.pool.as_ref()?);
        let (class, work) = (record.class?, record.work?);
        let member = record.member.as_ref()?;
        let address = |name: &Arc<str>| Arc::as_ptr(name).cast::<u8>() as usize / 16;
        let first = address(route) ^ address(member) ^ class.len() ^ (work as usize * 16);
        let mut places = (0..PLACES).map(|place| (first + place) % CACHED_TEXTS_MAX);
        let is_known = |known: &CachedText| {
            let way = &known.way;
            Arc::ptr_eq(&way.route, route)
                && Arc::ptr_eq(&way.member, member)
                && Arc::ptr_eq(&way.pool, pool)
                && way.class == class
                && way.work == work
        };
        let found = places
            .clone()
            .find(|place| self.0[*place].as_deref().is_some_and(is_known));
        let place = match found {
            Some(place) => place,
            None => {
                let mut text = Vec::new();
                write(&mut text);
                let way = Combination {
                    route: Arc::clone(route),
                    class,
                    work,
                    pool: Arc::clone(pool),
                    member: Arc::clone(member),
                };
                let free = places.find(|place| self.0[*place].is_none());
                let place = free.unwrap_or(first % CACHED_TEXTS_MAX);
                self.0[place] = Some(Box::new(CachedText { way, text }));
                place
            }
        };
        self.0[place].as_ref().map(|known| &*known.text)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::SystemTime;

    use super::*;

    /// There are enough members that some map to the same first place.
    #[test]
    fn members_of_one_route_are_formatted_once_wherever_their_names_are() {
        let name = |text: &str| Some(Arc::<str>::from(text));
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let mut record = AccessRecord::new(SystemTime::UNIX_EPOCH, "agents".into(), client);
        (record.route, record.pool) = (name("catalogs"), name("compilers"));
        (record.class, record.work) = (Some("catalog"), Some(Work::Catalog));
        let names: Vec<Arc<str>> = (0..CACHED_TEXTS_MAX * PLACES)
            .map(|_| "c1".into())
            .collect();
        let place =
            |name: &Arc<str>| Arc::as_ptr(name).cast::<u8>() as usize / 16 % CACHED_TEXTS_MAX;
        // At least [`PLACES`] members map to this place.
        let at = |wanted| names.iter().filter(move |name| place(name) == wanted);
        let most = (0..CACHED_TEXTS_MAX).max_by_key(|wanted| at(*wanted).count());
        let members: Vec<_> = at(most.expect("a place")).take(PLACES).collect();
        let (mut cache, mut written) = (LineCache::default(), 0);
        for _ in 0..3 {
            for member in &members {
                record.member = Some(Arc::clone(member));
                cache.text(&record, |_| written += 1);
            }
        }
        assert_eq!(written, members.len());
    }
}
