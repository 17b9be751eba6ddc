//! How servers read the names of headers: which spellings they take for the same name.

/// Whether [`crate::scrub()`] removes headers of this name under every configuration.
pub(crate) fn seems_identity(name: &str) -> bool {
    is_identity_name(without_cgi_prefix(name.as_bytes()))
}

/// The name without the prefix `HTTP_`. A CGI server turns `X-Client-DN` into `HTTP_X_CLIENT_DN`, and some servers reverse
/// that (HEADERS.md, 1).
pub(crate) fn without_cgi_prefix(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = after(name, b"http-") {
        name = rest;
    }
    name
}

/// Whether some server reads `name`, without the prefix of CGI, as an identity or forwarding header.
pub(crate) fn is_identity_name(name: &[u8]) -> bool {
    // The first letter rules out most names.
    match name.first().map(|byte| folded(*byte)) {
        Some(b'x' | b's' | b'c' | b'f' | b'p') => {}
        _ => return false,
    }
    PREFIXES.iter().any(|prefix| after(name, prefix).is_some())
        || NAMES.iter().any(|known| same_for_readers(name, known))
}

/// Whether some reader takes `name` for `own`, which is in lower case.
pub(crate) fn same_for_readers(name: &[u8], own: &[u8]) -> bool {
    name.len() == own.len() && after(name, own).is_some()
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
