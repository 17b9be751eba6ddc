//! Removes from a request every header that a member could take for ours (THREATS T1, T2).

use http::header::{HeaderMap, HeaderName};

use crate::OwnNames;

/// The header lines that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Lines that some reader takes for an identity or forwarding header: an attack or a mistake in front of us.
    pub identity: u32,
    /// The names of these lines, each once.
    pub identity_names: Vec<HeaderName>,
    /// Other lines whose name has a `_`, which CGI-style readers cannot tell from `-`.
    pub underscore: u32,
}

/// Removes every spelling of every identity and forwarding header, those that the configuration names among them, then
/// every other name with a `_`.
///
/// For every request, whoever sent it, before routing; what is clean costs no allocation.
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

/// Whether [`scrub`] removes headers of this name: a route's condition on such a header could never hold.
pub fn is_removed(name: &str, own: &OwnNames) -> bool {
    classify(name, own).is_some()
}

/// Whether this name is removed whatever the configuration says.
pub(crate) fn seems_identity(name: &str) -> bool {
    is_identity(name.as_bytes(), &OwnNames::default())
}

/// Whether some reader takes `name` for `own`, which is in lower case.
pub(crate) fn same_for_readers(name: &[u8], own: &[u8]) -> bool {
    name.len() == own.len() && after(name, own).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwanted {
    Identity,
    Underscore,
}

fn classify(name: &str, own: &OwnNames) -> Option<Unwanted> {
    let name = name.as_bytes();
    if is_identity(name, own) {
        Some(Unwanted::Identity)
    } else if name.contains(&b'_') {
        Some(Unwanted::Underscore)
    } else {
        None
    }
}

fn is_identity(mut name: &[u8], own: &OwnNames) -> bool {
    // `HTTP_X_CLIENT_DN` is what a CGI-style server makes of `X-Client-DN`, and some un-munge it (HEADERS.md, 1).
    while let Some(rest) = after(name, b"http-") {
        name = rest;
    }
    if own.holds(name) {
        return true;
    }
    // Most names are told apart by their first letter.
    match name.first().map(|byte| folded(*byte)) {
        Some(b'x' | b's' | b'c' | b'f' | b'p') => {}
        _ => return false,
    }
    PREFIXES.iter().any(|prefix| after(name, prefix).is_some())
        || NAMES.iter().any(|known| same_for_readers(name, known))
}

/// What follows `prefix`, if `name` begins with it as a folding reader sees it.
fn after<'a>(name: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    let same = head
        .iter()
        .zip(prefix)
        .all(|(byte, wanted)| folded(*byte) == *wanted);
    same.then_some(rest)
}

/// Lower case, and `-` for all that is neither letter nor digit: CGI-style readers fold `-` and `_`, Caddy's advisory
/// GHSA-f59h-q822-g45g adds `.`, and old Apache versions folded every other character of a token too.
fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte.to_ascii_lowercase()
    } else {
        b'-'
    }
}

/// Families: every name that begins so.
const PREFIXES: &[&[u8]] = &[
    b"x-client-",
    b"x-ssl-",
    b"x-forwarded-", // X-Forwarded-Client-Cert (Envoy) and X-Forwarded-Tls-Client-Cert* (Traefik) among them
    b"ssl-client-",
    b"client-cert", // RFC 9440, with Client-Cert-Chain
];

/// Names that stand alone. `Proxy` becomes `HTTP_PROXY` for a CGI program (CVE-2016-5385).
const NAMES: &[&[u8]] = &[
    b"x-client",
    b"x-ssl",
    b"x-forwarded",
    b"forwarded",
    b"x-real-ip",
    b"x-authentication",
    b"proxy",
    b"ssl-client",
];

#[cfg(test)]
mod tests;
