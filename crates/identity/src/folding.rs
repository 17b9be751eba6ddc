//! Which spellings of a header name servers read as the same name.

/// Whether [`crate::scrub()`] removes headers of this name under every configuration.
pub(crate) fn seems_identity(name: &str) -> bool {
    is_identity_name(without_cgi_prefix(name.as_bytes()))
}

/// The name without the prefix `HTTP_`. A CGI server turns `X-Client-DN` into `HTTP_X_CLIENT_DN`, and some servers
/// reverse that (HEADERS.md, 1).
pub(crate) fn without_cgi_prefix(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = after(name, b"http-") {
        name = rest;
    }
    name
}

/// Whether some server reads `name` as an identity or forwarding header. `name` has no CGI prefix.
pub(crate) fn is_identity_name(name: &[u8]) -> bool {
    // The first letter rules out most names.
    match name.first().map(|byte| folded(*byte)) {
        Some(b'x' | b's' | b'c' | b'f' | b'p') => {}
        _ => return false,
    }
    PREFIXES.iter().any(|prefix| after(name, prefix).is_some())
        || NAMES.iter().any(|known| same_for_readers(name, known))
}

/// Whether some server reads `name` as `own`, which is in lower case.
pub(crate) fn same_for_readers(name: &[u8], own: &[u8]) -> bool {
    name.len() == own.len() && after(name, own).is_some()
}

/// The rest of `name`, if a server that folds characters reads its beginning as `prefix`.
fn after<'a>(name: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    let same = head
        .iter()
        .zip(prefix)
        .all(|(byte, wanted)| folded(*byte) == *wanted);
    same.then_some(rest)
}

/// The byte in lower case, and `-` for anything but a letter or digit. CGI-style servers fold `-` and `_`. Caddy's
/// advisory GHSA-f59h-q822-g45g adds `.`. Old versions of Apache folded every other character of a token too.
fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte.to_ascii_lowercase()
    } else {
        b'-'
    }
}

/// Prefixes: a name that begins with one of these is an identity or forwarding header.
const PREFIXES: &[&[u8]] = &[
    b"x-client-",
    b"x-ssl-",
    b"x-forwarded-", // such as X-Forwarded-Client-Cert (Envoy) and X-Forwarded-Tls-Client-Cert* (Traefik)
    b"ssl-client-",
    b"client-cert", // RFC 9440, with Client-Cert-Chain
];

/// Whole names. `Proxy` becomes `HTTP_PROXY` for a CGI program (CVE-2016-5385).
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
