//! Tests of each string format, as tables of valid and invalid strings.

use super::*;

fn check(form: &Form, good: &[&str], bad: &[&str]) {
    for text in good {
        assert_eq!((form.check)(text), Ok(()), "{text}");
    }
    for text in bad {
        assert!((form.check)(text).is_err(), "{text}");
    }
}

#[test]
fn a_listener_has_an_ip_address_and_a_port() {
    check(
        &LISTEN,
        &["0.0.0.0:8140", "[::]:8140", "127.0.0.1:0"],
        &[
            "",
            ":8140",
            "*:8140",
            "8140",
            "localhost:8140",
            "::1",
            "0.0.0.0",
            "1.2.3.4:99999",
        ],
    );
}

#[test]
fn a_member_has_a_host_and_a_port_or_a_socket() {
    check(
        &MEMBER,
        &[
            "c1:8140",
            "c1.example.com:8140",
            "10.0.0.1:8140",
            "[2001:db8::1]:8140",
            "unix:/run/puppet.sock",
            "a_b:1",
        ],
        &[
            "",
            "c1",
            "c1:",
            "c1:0",
            "c1:70000",
            ":8140",
            "https://c1:8140",
            "unix:relative",
            "2001:db8::1",
            "a b:1",
            "c1:x",
        ],
    );
}

#[test]
fn only_loopback_sockets_and_localhost_are_local() {
    let local = |text: &str| Address::parse(text).is_ok_and(|address| address.is_local());
    for text in [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
        "localhost:1",
        "unix:/run/s",
    ] {
        assert!(local(text), "{text}");
    }
    for text in [
        "10.0.0.1:1",
        "[2001:db8::1]:1",
        "c1.example.com:1",
        "localhost.example.com:1",
        "0.0.0.0:1",
    ] {
        assert!(!local(text), "{text}");
    }
}

#[test]
fn an_unchecked_issuer_is_named_by_rfc_2253() {
    check(
        &ISSUER,
        &[
            "*",
            "CN=Puppet CA: puppet",
            "CN=a\\, b,O=c",
            "2.5.4.3=x",
            "CN=a+O=b",
            "CN=a, O=b",
            "CN=\"a,b\",O=c",
        ],
        &[
            "",
            "Puppet CA",
            "/CN=x",
            "/O=x/CN=y",
            "CN=",
            "=x",
            "CN=a,",
            "CN=a\\",
            "CN=\"a",
            "C N=a",
            "**",
        ],
    );
    let fault = (ISSUER.check)("/O=x/CN=y").expect_err("OpenSSL's form");
    assert_eq!(fault.help.as_deref(), Some("write \"CN=y,O=x\""));
}

#[test]
fn conditions_that_could_never_match_are_refused() {
    check(
        &PATH_SEGMENTS,
        &["/", "/a", "/a/b-c"],
        &["", "a", "/a/../b", "/a/.", "/a?b", "/a b", "/ä", "/a\\b"],
    );
    check(
        &HOST,
        &["puppet", "10.0.0.1", "::1", "*.example.com", "*.test"],
        &[
            "",
            "puppet:8140",
            "a b",
            "*",
            "*.",
            "*a.b",
            "a.*.b",
            "*.a:1",
        ],
    );
    check(&METHOD, &["GET", "M-SEARCH"], &["", "get", "G T"]);
    check(
        &CERTNAME_PATTERN,
        &["web*", "*", "Web01"],
        &["", "a b", "CN=a,b", "a/b"],
    );
    check(&REGEX, &["/a/[0-9]+", ""], &["(", "[a", "a{2,1}"]);
}

#[test]
fn names_and_paths_are_plain() {
    check(
        &NAME,
        &["agents", "a-1_B"],
        &["", "a b", "a.b", "ä", &"x".repeat(65)],
    );
    check(
        &CERTNAME,
        &["web01.example.com", "a_b"],
        &["", "Web01", "a/b", "*"],
    );
    check(
        &SERVER_NAME,
        &["c1.example.com", "10.0.0.1"],
        &["", "c1:8140", "a b"],
    );
    check(&PATH, &["/a"], &["", "a", "./a", "~/a"]);
    check(&OUTPUT, &["stdout", "/var/log/x"], &["stderr", "x"]);
    check(
        &SOCKET,
        &["/run/a.sock"],
        &["a.sock", &format!("/{}", "x".repeat(107))],
    );
}
