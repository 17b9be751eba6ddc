//! The part of a log line that is the same for all requests with the same route, class, kind of work, pool and member.
//!
//! An estate has few such combinations, so the text of each is formatted once and then copied.

use std::sync::Arc;

use balancing::Work;

use crate::record::AccessRecord;

/// Maximum number of cached combinations. A new one replaces the one in the same slot.
const CACHED_TEXTS_MAX: usize = 64;

/// The cached texts of one writer.
#[derive(Debug)]
pub(crate) struct LineCache([Option<Box<CachedText>>; CACHED_TEXTS_MAX]);

#[derive(Debug)]
struct CachedText {
    way: Combination,
    text: Vec<u8>,
}

/// The names of a combination. They are compared by address. Because they are held here, no other name can have their address.
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
        Self([const { None }; CACHED_TEXTS_MAX])
    }
}

impl LineCache {
    /// The text of the record's combination, which `write` formats unless it is cached. `None` if no member got the request.
    pub(crate) fn text(
        &mut self,
        record: &AccessRecord,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&[u8]> {
        let (route, pool) = (record.route.as_ref()?, record.pool.as_ref()?);
        let (class, work) = (record.class?, record.work?);
        let member = record.member.as_ref()?;
        let address = |name: &Arc<str>| Arc::as_ptr(name).cast::<u8>() as usize / 16;
        let place = address(route) ^ address(member) ^ class.len() ^ (work as usize * 16);
        let known = &mut self.0[place % CACHED_TEXTS_MAX];
        let is_known = known.as_ref().is_some_and(|known| {
            let way = &known.way;
            Arc::ptr_eq(&way.route, route)
                && Arc::ptr_eq(&way.member, member)
                && Arc::ptr_eq(&way.pool, pool)
                && way.class == class
                && way.work == work
        });
        if !is_known {
            let mut text = Vec::new();
            write(&mut text);
            let way = Combination {
                route: Arc::clone(route),
                class,
                work,
                pool: Arc::clone(pool),
                member: Arc::clone(member),
            };
            *known = Some(Box::new(CachedText { way, text }));
        }
        known.as_ref().map(|known| &*known.text)
    }
}
