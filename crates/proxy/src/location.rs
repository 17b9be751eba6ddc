//! Rewrites URLs of members in response headers to the name that the client uses for the proxy (`proxy_pass_reverse`).

use std::borrow::Cow;

use balancing::without_ip;
use http::{
    HeaderName, HeaderValue,
    header::{CONTENT_LOCATION, LOCATION},
};
use http1::Fields;

use crate::pool_runtime::PoolRuntime;

/// The headers that Apache's `ProxyPassReverse` rewrites.
pub(crate) const URL_HEADERS: [HeaderName; 3] =
    [LOCATION, CONTENT_LOCATION, HeaderName::from_static("uri")];

/// Rewrites URLs that name a member of the pool, and `http` URLs with the client's Host.
pub(crate) fn rewrite(pool: &PoolRuntime, host: Option<&str>, fields: &mut Fields) {
    let Some(host) = host else {
        return;
    };
    let is_member = |authority: &str| {
        let mut entries = pool.pool.entries().iter();
        entries.any(|entry| is_same_server(entry.member.address(), authority))
    };
    for name in URL_HEADERS {
        let rewritten = fields.value(&name).and_then(|value| {
            let url = rewritten(std::str::from_utf8(value).ok()?, host, is_member)?;
            HeaderValue::try_from(url).ok()
        });
        if let Some(value) = rewritten {
            fields.insert(name, value);
        }
    }
}

/// The URL with `https` and the client's Host, if it names a member. `https` is always right: listeners without TLS redirect
/// requests or pass connections through, so every request that reaches a member has arrived over TLS.
fn rewritten(url: &str, host: &str, is_member: impl Fn(&str) -> bool) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let is_http = scheme.eq_ignore_ascii_case("http");
    if !is_http && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = with_port(authority, if is_http { 80 } else { 443 });
    // A member that gets requests over plain HTTP with the client's Host writes URLs with `http` and that Host.
    let is_front = is_http && (authority.eq_ignore_ascii_case(&with_port(host, 80)));
    (is_front || is_member(&authority)).then(|| format!("https://{host}{target}"))
}

/// Whether a member's address has this host and port. In `host:port@address`, the part after `@` is one address of the
/// host.
fn is_same_server(address: &str, authority: &str) -> bool {
    without_ip(address).eq_ignore_ascii_case(authority)
}

fn with_port(authority: &str, port: u16) -> Cow<'_, str> {
    let after_host = authority.rfind(']').map_or(0, |end| end);
    if authority[after_host..].contains(':') {
        Cow::Borrowed(authority)
    } else {
        Cow::Owned(format!("{authority}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_name_a_member_get_the_clients_name_of_the_proxy() {
        let is_member = |authority: &str| {
            ["127.0.0.1:18140", "c1.example.com:80", "[::1]:18140"]
                .iter()
                .any(|member| is_same_server(member, authority))
        };
        let host = "puppet.example.com:8140";
        for (url, expected) in [
            (
                "http://127.0.0.1:18140/a/b?c=d",
                Some("https://puppet.example.com:8140/a/b?c=d"),
            ),
            (
                "HTTP://127.0.0.1:18140",
                Some("https://puppet.example.com:8140"),
            ),
            (
                "http://C1.example.com/x",
                Some("https://puppet.example.com:8140/x"),
            ),
            (
                "http://c1.example.com:80?x",
                Some("https://puppet.example.com:8140?x"),
            ),
            (
                "http://[::1]:18140/",
                Some("https://puppet.example.com:8140/"),
            ),
            (
                "http://puppet.example.com:8140/x",
                Some("https://puppet.example.com:8140/x"),
            ),
            (
                "http://127.0.0.1:18140/\u{fc}",
                Some("https://puppet.example.com:8140/\u{fc}"),
            ),
            ("https://puppet.example.com:8140/x", None),
            ("http://127.0.0.1:18141/", None),
            ("http://127.0.0.1:18140.example.org/", None),
            ("http://127.0.0.1:18140@example.org/", None),
            ("http://example.org/127.0.0.1:18140/", None),
            ("ftp://127.0.0.1:18140/", None),
            ("/a/b", None),
            ("//127.0.0.1:18140/a", None),
            ("", None),
        ] {
            assert_eq!(
                rewritten(url, host, is_member).as_deref(),
                expected,
                "{url}"
            );
        }
    }
}
