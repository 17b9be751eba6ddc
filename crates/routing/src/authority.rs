//! Host names of requests without their port, and the comparison of hosts that absolute-form requires.

/// The host of a `Host` value or an authority, without its port.
pub fn host_name(host: &str) -> &str {
    let Some((name, port)) = host.rsplit_once(':') else {
        return host;
    };
    // `[::1]` contains colons that do not precede a port.
    let whole = !name.starts_with('[') || name.ends_with(']');
    if whole && port.bytes().all(|byte| byte.is_ascii_digit()) {
        name
    } else {
        host
    }
}

/// Whether the authority of an absolute-form target equals that in `Host`, so that the target may be forwarded in origin-form.
/// User information never matches. The comparison ignores case, and an absent port differs from every port.
pub fn authority_is_host(authority: &str, host: &str) -> bool {
    !authority.is_empty() && !authority.contains('@') && authority.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_left_out() {
        let cases = [
            ("puppet", "puppet"),
            ("puppet:8140", "puppet"),
            ("puppet:", "puppet"),
            ("[::1]:8140", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("", ""),
        ];
        for (host, expected) in cases {
            assert_eq!(host_name(host), expected, "{host}");
        }
    }

    #[test]
    fn absolute_form_needs_the_authority_that_host_names() {
        assert!(authority_is_host("Puppet:8140", "puppet:8140"));
        for (authority, host) in [
            ("puppet", "puppet:8140"),
            ("a", "b"),
            ("u@puppet", "u@puppet"),
            ("", ""),
        ] {
            assert!(!authority_is_host(authority, host), "{authority} {host}");
        }
    }
}
