//! Removes from a request every header that a member could read as an identity header of the proxy (THREATS T1, T2).

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::folding::{is_identity_name, without_cgi_prefix};
use crate::header_rules::HeaderRules;
use crate::own_names::OwnNames;

/// Counts of the header lines that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Lines that some server reads as an identity or forwarding header. A client sends them by mistake or as an
    /// attack.
    pub identity: u32,
    /// The names of these lines, without duplicates.
    pub identity_names: Vec<HeaderName>,
    /// Other lines with a `_` in their name. CGI-style servers cannot distinguish `_` from `-`.
    pub underscore: u32,
    /// Lines that some route keeps. They are counted when the route is known ([`ScrubReport::of_unkept`]).
    pub set_aside: Vec<(HeaderName, HeaderValue)>,
}

impl ScrubReport {
    /// The counts for the lines of `set_aside` that a route and its pool do not keep.
    pub fn of_unkept(set_aside: &[(HeaderName, HeaderValue)], rules: [&HeaderRules; 2]) -> Self {
        let mut report = Self::default();
        for (name, _) in set_aside {
            if !rules.iter().any(|rules| rules.keeps(name.as_str())) {
                // Only lines that `classify` finds are set aside.
                let finding = classify(name.as_str(), &OwnNames::default());
                report.count(name, finding.unwrap_or(Unwanted::Identity), 1);
            }
        }
        report
    }

    fn count(&mut self, name: &HeaderName, finding: Unwanted, lines: usize) {
        let lines = u32::try_from(lines).unwrap_or(u32::MAX);
        match finding {
            Unwanted::Identity => {
                self.identity += lines;
                if !self.identity_names.contains(name) {
                    self.identity_names.push(name.clone());
                }
            }
            Unwanted::Underscore => self.underscore += lines,
        }
    }
}

/// Removes every spelling of every identity and forwarding header, including the names in the configuration, and then
/// every other name with a `_`.
///
/// Called for every request of every client, before routing. A clean request costs no allocation.
pub fn scrub(headers: &mut HeaderMap, own: &OwnNames) -> ScrubReport {
    let mut scrubbing = ScrubReport::default();
    let found = |name: &HeaderName| classify(name.as_str(), own);
    if !headers.keys().any(|name| found(name).is_some()) {
        return scrubbing;
    }
    let unwanted = headers
        .keys()
        .filter_map(|name| Some((name.clone(), found(name)?)));
    let unwanted: Vec<(HeaderName, Unwanted)> = unwanted.collect();
    for (name, finding) in unwanted {
        let lines = headers.get_all(&name).iter();
        if own.may_keep(name.as_str()) {
            let lines = lines.map(|value| (name.clone(), value.clone()));
            scrubbing.set_aside.extend(lines);
        } else {
            scrubbing.count(&name, finding, lines.count());
        }
        headers.remove(&name);
    }
    scrubbing
}

/// Whether [`scrub`] removes headers with this name. A route's condition on such a header could never match.
pub fn is_removed(name: &str, own: &OwnNames) -> bool {
    classify(name, own).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwanted {
    Identity,
    Underscore,
}

fn classify(name: &str, own: &OwnNames) -> Option<Unwanted> {
    let name = name.as_bytes();
    let bare = without_cgi_prefix(name);
    if own.holds(bare) || is_identity_name(bare) {
        Some(Unwanted::Identity)
    } else if name.contains(&b'_') {
        Some(Unwanted::Underscore)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
