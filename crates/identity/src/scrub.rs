//! Removes from a request every header that a member could read as an identity header of the proxy (THREATS T1, T2).

use http::header::{HeaderMap, HeaderName};

use crate::folding::{is_identity_name, without_cgi_prefix};
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
        let lines = u32::try_from(headers.get_all(&name).iter().count()).unwrap_or(u32::MAX);
        headers.remove(&name);
        match finding {
            Unwanted::Identity => {
                scrubbing.identity += lines;
                scrubbing.identity_names.push(name);
            }
            Unwanted::Underscore => scrubbing.underscore += lines,
        }
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
