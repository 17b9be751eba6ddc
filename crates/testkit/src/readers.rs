//! The identity that Puppet's servers read from the headers that they receive: ports of their code, including its
//! mistakes.
//!
//! Puppet Server uses trapperkeeper-authorization with Bouncy Castle's parser for names. Mongrel and Rack are those of
//! Puppet 0.23 to 5. The tests compare the ports with the results of the original programs.

use std::sync::LazyLock;

use crate::Headers;
use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};
use rustls_pki_types::{CertificateDer, pem::PemObject};

/// The identity that a server derives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The client's name; `None` if the server has no name for the client.
    pub name: Option<String>,
    /// Whether the server treats the client as verified.
    pub authenticated: bool,
}

/// The server answers with its own error and serves no client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(
    /// The error message.
    pub &'static str,
);

/// Puppet Server with `allow-header-cert-info: true`: three fixed header names.
pub fn puppet_server(headers: &Headers) -> Result<Reading, Broken> {
    let dn = joined(headers, "x-client-dn").filter(|dn| !dn.is_empty());
    let name = match &dn {
        None => None,
        // `valid-x500-name?` catches any exception of the parser.
        Some(dn) => bouncy_castle_cn(dn, BouncyCastle::Newest).unwrap_or_else(|_| slashed_cn(dn)),
    };
    let name = name.filter(|name| !name.is_empty());
    let verified = joined(headers, "x-client-verify").as_deref() == Some("SUCCESS");
    Ok(Reading {
        authenticated: verified && name.is_some(),
        name,
    })
}

/// Puppet Server up to 6 with `use-legacy-auth-conf`: configurable names, subjects in RFC 2253 only.
pub fn puppet_server_legacy(
    headers: &Headers,
    client_header: &str,
    verify_header: &str,
) -> Result<Reading, Broken> {
    let read = |setting: &str| {
        // The part of `HTTP_X_CLIENT_DN` before the first underscore is dropped.
        let words = setting.split_once('_').map_or("", |(_, words)| words);
        joined(headers, &words.to_ascii_lowercase().replace('_', "-"))
    };
    let dn = read(client_header);
    let name = dn.and_then(|dn| bouncy_castle_cn(&dn, BouncyCastle::Old).ok().flatten());
    Ok(Reading {
        authenticated: name.is_some() && read(verify_header).as_deref() == Some("SUCCESS"),
        name,
    })
}

/// Mongrel (0.23 to 2.7), and Rack of 2.6 and 2.7: everything after the first `CN=`.
pub fn mongrel(headers: &Headers, client_header: &str, verify_header: &str) -> Reading {
    let name = cgi(headers, client_header).and_then(|dn| after_cn(&dn));
    Reading {
        authenticated: name.is_some() && cgi(headers, verify_header).as_deref() == Some("SUCCESS"),
        name,
    }
}

/// Rack (Passenger, Unicorn) of Puppet 3 to 5.
pub fn rack(
    headers: &Headers,
    client_header: &str,
    verify_header: &str,
    ruby: Ruby,
) -> Result<Reading, Broken> {
    let dn = cgi(headers, client_header).unwrap_or_default();
    let name = if dn.contains('=') {
        ruby_cn(&dn, ruby)?
    } else {
        None
    };
    Ok(Reading {
        authenticated: name.is_some() && cgi(headers, verify_header).as_deref() == Some("SUCCESS"),
        name,
    })
}

/// The version of Ruby's openssl library. The older one also cuts names in OpenSSL's form at commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruby {
    /// Cuts at commas too.
    Old,
    /// Cuts at slashes only, if the name begins with one.
    New,
}

/// The readings by all readers, with the usual header names, for every format.
pub fn all(headers: &Headers) -> [(&'static str, Result<Reading, Broken>); 5] {
    let (dn, verify) = ("HTTP_X_CLIENT_DN", "HTTP_X_CLIENT_VERIFY");
    [
        ("Puppet Server", puppet_server(headers)),
        (
            "Puppet Server, legacy",
            puppet_server_legacy(headers, dn, verify),
        ),
        ("Rack", rack(headers, dn, verify, Ruby::New)),
        ("Rack on an old Ruby", rack(headers, dn, verify, Ruby::Old)),
        ("Mongrel", Ok(mongrel(headers, dn, verify))),
    ]
}

/// Whether a reader in [`all`] can read any subject in this format.
pub fn is_for(format: &str, reader: &str) -> bool {
    !matches!(
        (format, reader),
        ("openssl", "Puppet Server, legacy" | "Mongrel") | ("rfc2253", "Mongrel")
    )
}

/// Whether an accepted certificate can have this name. If not, reading the name by mistake does no harm.
pub fn is_possible(name: &str) -> bool {
    let fit = |byte: u8| matches!(byte, b' '..=b'~') && !b",/+\"'\\".contains(&byte);
    (1..=255).contains(&name.len()) && name.bytes().all(fit) && name.trim_matches(' ') == name
}

/// Decodes `X-Client-Cert` as Puppet Server does: exactly one certificate, or 400.
pub fn escaped_certificate(headers: &Headers) -> Result<Option<Vec<u8>>, Broken> {
    let Some(value) = joined(headers, "x-client-cert") else {
        return Ok(None);
    };
    let pem = percent_decode_str(&value).decode_utf8_lossy().into_owned();
    one_certificate(&pem).map(Some)
}

/// Decodes `X-SSL-Client-Cert` as Rack of Puppet 4.6 to 5 does, which restores the line ends.
pub fn one_line_certificate(headers: &Headers) -> Result<Option<Vec<u8>>, Broken> {
    let value = cgi(headers, "HTTP_X_SSL_CLIENT_CERT").unwrap_or_default();
    if value.is_empty() {
        return Ok(None);
    }
    let pem = value
        .replace(' ', "\n")
        .replace("BEGIN\nCERT", "BEGIN CERT")
        .replace("END\nCERT", "END CERT");
    one_certificate(&pem).map(Some)
}

fn one_certificate(pem: &str) -> Result<Vec<u8>, Broken> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found.map_err(|_| Broken("no PEM"))?.as_slice() {
        [one] => Ok(one.to_vec()),
        _ => Err(Broken("not one certificate")),
    }
}

/// The value that Ring passes on: lines with the same name are joined with commas.
fn joined(headers: &Headers, name: &str) -> Option<String> {
    let lines = headers.all(name);
    let value = lines.join(",");
    (!lines.is_empty()).then(|| in_http(&value))
}

/// The value that remains after an HTTP parser: whitespace around it is removed (RFC 9110, 5.5).
fn in_http(value: &str) -> String {
    value.trim_matches([' ', '\t']).to_owned()
}

/// A CGI variable. Every header whose name converts to it counts.
fn cgi(headers: &Headers, variable: &str) -> Option<String> {
    let folded = |name: &str| format!("HTTP_{}", name.to_uppercase().replace(['-', '.'], "_"));
    let lines: Vec<_> = headers
        .0
        .iter()
        .filter(|(name, _)| folded(name) == variable)
        .map(|(_, value)| value.as_str())
        .collect();
    let value = lines.join(", ");
    (!lines.is_empty()).then(|| in_http(&value))
}

/// `/^.*?CN\s*=\s*(.*)/`
fn after_cn(dn: &str) -> Option<String> {
    static PATTERN: Pattern =
        Pattern::new(|| Regex::new(r"(?m)^.*?CN\s*=\s*(.*)").expect("a pattern"));
    Some(PATTERN.captures(dn)?[1].to_owned())
}

/// The CN in OpenSSL's form as trapperkeeper-authorization reads it: the name is cut at slashes, and the first part of
/// type `CN` counts.
fn slashed_cn(dn: &str) -> Option<String> {
    let mut parts = dn.split('/').filter_map(|part| part.split_once('='));
    parts
        .find(|(kind, _)| *kind == "CN")
        .map(|(_, value)| value.to_owned())
}

/// The parser throws an exception.
struct Malformed;

/// The version of the parser. An input at which any release in this range throws makes this port fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BouncyCastle {
    /// 1.70 to 1.78, in Puppet Server up to 8.
    Old,
    /// 1.85, which also enforces the length limits of X.520.
    Newest,
}

/// `new X500Name(BCStyle.INSTANCE, dn)`, then the first value in the first RDN that has a CN.
fn bouncy_castle_cn(dn: &str, version: BouncyCastle) -> Result<Option<String>, Malformed> {
    let mut name = None;
    for token in tokens(dn, ',') {
        let attributes = tokens(&token, '+')
            .into_iter()
            .map(|one| bouncy_castle_attribute(&one, version));
        let rdn: Vec<(String, String)> = attributes.collect::<Result<_, _>>()?;
        if name.is_none() && rdn.iter().any(|(kind, _)| kind == CN) {
            name = rdn.first().map(|(_, value)| value.clone());
        }
    }
    Ok(name)
}

fn bouncy_castle_attribute(
    token: &str,
    version: BouncyCastle,
) -> Result<(String, String), Malformed> {
    let mut parts = tokens(token, '=').into_iter();
    let (Some(kind), Some(value)) = (parts.next(), parts.next()) else {
        return Err(Malformed);
    };
    let kind = bouncy_castle_type(kind.trim()).ok_or(Malformed)?;
    let value = unescaped(&value).ok_or(Malformed)?;
    let value = match value.strip_prefix('#') {
        Some(digits) if is_sure(digits) => decoded(digits).ok_or(Malformed)?,
        Some(_) => return Err(Malformed),
        None => {
            let text = value.strip_prefix('\\').unwrap_or(&value).to_owned();
            let in_bounds = match kind.as_str() {
                CN => text.chars().count() <= 64,
                COUNTRY => text.chars().count() == 2,
                _ => true,
            };
            if in_bounds || version == BouncyCastle::Old {
                text
            } else {
                return Err(Malformed);
            }
        }
    };
    Ok((kind, value))
}

/// Whether a value in hexadecimal digits is of a type for which the parser was never seen to throw.
fn is_sure(digits: &str) -> bool {
    let Some((tag, content)) = split(digits) else {
        return false;
    };
    match tag {
        0x04 | 0x0c | 0x12..=0x14 | 0x16 | 0x1a..=0x1c => true,
        0x03 => match content.as_slice() {
            [0, ..] => true,
            [unused, _, ..] => *unused < 8,
            _ => false,
        },
        0x1e => content.len().is_multiple_of(2),
        _ => false,
    }
}

/// `X500NameTokenizer`: cuts at separators that are neither escaped nor quoted.
fn tokens(text: &str, separator: char) -> Vec<String> {
    let mut found = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        if c == separator && !quoted && !escaped {
            found.push(String::new());
            continue;
        }
        match c {
            _ if escaped => escaped = false,
            '"' => quoted = !quoted,
            '\\' if !quoted => escaped = true,
            _ => {}
        }
        found.last_mut().expect("begun with one").push(c);
    }
    found
}

/// `IETFUtils.unescape`: each pair of digits becomes a character, so bytes of UTF-8 become Latin-1.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains(['\\', '"']) {
        return Some(text.trim().to_owned());
    }
    let (mut out, mut rest) = (String::new(), text);
    if let Some(after) = text.strip_prefix("\\#") {
        out.push_str("\\#");
        rest = after;
    }
    let (mut escaped, mut quoted, mut begun, mut last_escaped) = (false, false, false, 0);
    let mut first_digit = None;
    for c in rest.chars() {
        begun |= c != ' ';
        match c {
            '"' if escaped => {
                out.push(c);
                escaped = false;
            }
            '"' => quoted = !quoted,
            '\\' if !escaped && !quoted => {
                escaped = true;
                last_escaped = out.chars().count();
            }
            ' ' if !escaped && !begun => {}
            c if escaped && c.is_ascii_hexdigit() => match first_digit.take() {
                None => first_digit = c.to_digit(16),
                Some(high) => {
                    let low = c.to_digit(16).unwrap_or_default();
                    out.extend(char::from_u32(high * 16 + low));
                    escaped = false;
                }
            },
            c => {
                out.push(c);
                escaped = false;
            }
        }
    }
    while out.ends_with(' ') && last_escaped + 1 != out.chars().count() {
        out.pop();
    }
    (!escaped).then_some(out)
}

fn bouncy_castle_type(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let known = TYPES.iter().find(|(short, _)| *short == lower);
    let dotted = lower.strip_prefix("oid.").unwrap_or(&lower);
    known
        .map(|(_, oid)| (*oid).to_owned())
        .or_else(|| is_dotted(dotted).then(|| dotted.to_owned()))
}

fn is_dotted(text: &str) -> bool {
    let arcs: Vec<Option<u128>> = text.split('.').map(|arc| arc.parse().ok()).collect();
    let begins = match arcs.as_slice() {
        [Some(0 | 1), Some(second), ..] => *second < 40,
        [Some(2), Some(_), ..] => true,
        _ => false,
    };
    begins && arcs.iter().all(Option::is_some)
}

/// The text of a value that is given as the hexadecimal digits of its DER.
fn decoded(digits: &str) -> Option<String> {
    let (tag, value) = split(digits)?;
    // Types that are not text also have a value here, but no Puppet server reads it.
    Some(match tag {
        0x0c | 0x13 | 0x14 | 0x16 | 0x1a => String::from_utf8_lossy(&value).into_owned(),
        _ => format!("#{digits}"),
    })
}

/// The tag and the content of DER that is given as hexadecimal digits.
fn split(digits: &str) -> Option<(u8, Vec<u8>)> {
    let pairs: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect();
    let der = pairs?;
    let (tag, length, value) = match der.as_slice() {
        [tag, length @ ..=0x7f, value @ ..] => (*tag, usize::from(*length), value),
        [tag, 0x81, length, value @ ..] => (*tag, usize::from(*length), value),
        [tag, 0x82, high, low, value @ ..] => {
            (*tag, usize::from(*high) << 8 | usize::from(*low), value)
        }
        _ => return None,
    };
    (length == value.len()).then(|| (tag, value.to_vec()))
}

/// `parse_rfc2253`, and `parse_openssl` if that raises; then `to_a.assoc("CN")`.
fn ruby_cn(dn: &str, ruby: Ruby) -> Result<Option<String>, Broken> {
    let name = match ruby_rfc2253(dn).and_then(|ary| known_types(&ary).then_some(ary)) {
        Some(ary) => ary,
        None => match ruby_openssl(dn, ruby)? {
            Some(ary) => ary,
            None => return Ok(None),
        },
    };
    let cn = name
        .into_iter()
        .find(|(kind, _)| ruby_type(kind) == Some("CN"));
    Ok(cn.map(|(_, value)| value))
}

/// The attributes, the last one in the text first. `None` if Ruby raises `NameError`.
fn ruby_rfc2253(dn: &str) -> Option<Vec<(String, String)>> {
    static PATTERN: Pattern = Pattern::new(|| {
        Regex::new(concat!(
            r#"\A([a-zA-Z][0-9a-zA-Z]*|[0-9]+(?:\.[0-9]+)*)="#,
            r##"(?:#((?:[0-9a-fA-F]{2})+)|"((?:[^\\"]|\\(?:[,=+<>#;\\"]|[0-9a-fA-F]{2}))*)""##,
            r##"|((?:[^\\",=+<>#;]|\\(?:[,=+<>#;\\"]|[0-9a-fA-F]{2}))*))"##
        ))
        .expect("a pattern")
    });
    let (mut found, mut rest) = (Vec::new(), dn);
    loop {
        let matched = PATTERN.captures(rest)?;
        let value = match (matched.get(2), matched.get(3).or_else(|| matched.get(4))) {
            (Some(digits), _) => decoded(digits.as_str()).filter(|text| !text.starts_with('#'))?,
            (None, Some(text)) => ruby_pairs(text.as_str()),
            (None, None) => return None,
        };
        found.insert(0, (matched[1].to_owned(), value));
        let remain = &rest[matched[0].len()..];
        match remain.strip_prefix(',') {
            Some(more) if remain.len() > 2 => rest = more,
            _ => return remain.is_empty().then_some(found),
        }
    }
}

fn ruby_pairs(text: &str) -> String {
    static PAIR: Pattern =
        Pattern::new(|| Regex::new(r#"\\([,=+<>#;\\"]|[0-9a-fA-F]{2})"#).expect("a pattern"));
    PAIR.replace_all(text, |found: &Captures<'_>| match &found[1] {
        digits if digits.len() == 2 => {
            let byte = u8::from_str_radix(digits, 16).expect("two digits");
            char::from(byte).to_string()
        }
        sign => sign.to_owned(),
    })
    .into_owned()
}

/// `None` if Ruby raises `NameError`; Puppet does not rescue other errors.
fn ruby_openssl(dn: &str, ruby: Ruby) -> Result<Option<Vec<(String, String)>>, Broken> {
    let parts: Vec<&str> = match (ruby, dn.strip_prefix('/')) {
        (Ruby::New, Some(rest)) => rest.split('/').collect(),
        (Ruby::New, None) => dn.split(',').map(str::trim).collect(),
        (Ruby::Old, _) => dn
            .split(['/', ','])
            .map(str::trim_start)
            .filter(|part| !part.is_empty())
            .collect(),
    };
    let mut found = Vec::new();
    for part in parts {
        match part.split_once('=') {
            Some((kind, value)) if ruby_type(kind).is_some() => {
                found.push((kind.to_owned(), value.to_owned()));
            }
            Some(_) => return Ok(None),
            None => return Err(Broken("no implicit conversion of nil into String")),
        }
    }
    Ok(Some(found))
}

fn known_types(ary: &[(String, String)]) -> bool {
    ary.iter().all(|(kind, _)| ruby_type(kind).is_some())
}

/// The short name that OpenSSL has for a type, which is given by short name, long name or number, in the right case.
fn ruby_type(kind: &str) -> Option<&'static str> {
    const OTHER: &str = "other";
    match kind {
        "CN" | "commonName" | "2.5.4.3" => Some("CN"),
        "C" | "O" | "OU" | "L" | "ST" | "DC" | "UID" | "street" | "emailAddress" => Some(OTHER),
        number if is_dotted(number) => Some(OTHER),
        _ => None,
    }
}

type Pattern = LazyLock<Regex>;

const CN: &str = "2.5.4.3";
const COUNTRY: &str = "2.5.4.6";

const TYPES: &[(&str, &str)] = &[
    ("cn", CN),
    ("c", "2.5.4.6"),
    ("o", "2.5.4.10"),
    ("ou", "2.5.4.11"),
    ("l", "2.5.4.7"),
    ("st", "2.5.4.8"),
    ("street", "2.5.4.9"),
    ("dc", "0.9.2342.19200300.100.1.25"),
    ("uid", "0.9.2342.19200300.100.1.1"),
    ("e", "1.2.840.113549.1.9.1"),
    ("emailaddress", "1.2.840.113549.1.9.1"),
];

#[cfg(test)]
mod tests;
