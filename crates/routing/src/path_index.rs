//! An index of configured routes by path, so that a request is not compared with every route.

use std::collections::BTreeMap;

use crate::route::RouteEntry;

/// Minimum number of routes for an index. In a smaller table, comparing a path with each route costs no more than a lookup.
const ROUTES_MIN: usize = 16;

/// Maximum number of slashes in an indexed path. Routes whose literal path has more are compared with every request. No Puppet
/// endpoint has more.
const SLASHES_MAX: usize = 14;

/// Number of lists of candidates: one per slash of a path, up to one more than the maximum; one for the whole path; and one for
/// routes without a literal path.
const LISTS: usize = SLASHES_MAX + 3;

/// The routes by the literal path of their condition.
#[derive(Debug)]
pub(crate) struct PathIndex {
    /// Routes with a prefix (without a slash at the end) or an exact path.
    literal: BTreeMap<String, Vec<usize>>,
    /// Routes that are not in `literal`.
    others: Vec<usize>,
}

/// The routes that can match one path, in the order of the table.
pub(crate) struct Candidates<'a>([&'a [usize]; LISTS]);

impl PathIndex {
    /// Builds the index. `None` if the table is too small to need one.
    pub(crate) fn new(routes: &[RouteEntry]) -> Option<Self> {
        if routes.len() < ROUTES_MIN {
            return None;
        }
        let mut index = Self {
            literal: BTreeMap::new(),
            others: Vec::new(),
        };
        for (number, route) in routes.iter().enumerate() {
            match route.literal_path() {
                Some(path) if slashes(path).count() <= SLASHES_MAX => {
                    let numbers = index.literal.entry(path.to_owned()).or_default();
                    numbers.push(number);
                }
                _ => index.others.push(number),
            }
        }
        Some(index)
    }

    /// The routes whose path condition may match.
    pub(crate) fn candidates(&self, path: &str) -> Candidates<'_> {
        let mut lists: [&[usize]; LISTS] = [&[]; LISTS];
        let known = |path: &str| self.literal.get(path).map_or(&[][..], |numbers| numbers);
        // A prefix ends where a segment ends: before a slash, or at the end of the path.
        let ends = slashes(path).take(SLASHES_MAX + 1).chain([path.len()]);
        for (list, end) in lists.iter_mut().zip(ends) {
            *list = known(&path[..end]);
        }
        lists[LISTS - 1] = &self.others;
        Candidates(lists)
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let first = self
            .0
            .iter()
            .filter_map(|list| list.first())
            .min()
            .copied()?;
        for list in &mut self.0 {
            if let [number, rest @ ..] = list
                && *number == first
            {
                *list = rest;
            }
        }
        Some(first)
    }
}

/// The positions of the slashes in a path.
fn slashes(path: &str) -> impl Iterator<Item = usize> {
    path.bytes()
        .enumerate()
        .filter(|(_, byte)| *byte == b'/')
        .map(|(at, _)| at)
}
