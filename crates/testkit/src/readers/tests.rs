//! The ports compared with the results of the original programs.

use super::*;

/// Headers with this subject and the verdict SUCCESS.
fn headers(dn: &str) -> Headers {
    Headers(vec![
        ("X-Client-Verify".to_owned(), "SUCCESS".to_owned()),
        ("X-Client-DN".to_owned(), dn.to_owned()),
    ])
}

#[test]
fn puppet_server_reads_what_it_was_seen_to_read() {
    for (dn, name) in [
        ("CN=victim,CN=attacker", Some("victim")),
        ("CN=agent,O=Org", Some("agent")),
        ("O=Org,CN=agent", Some("agent")),
        ("2.5.4.3=agent", Some("agent")),
        ("OID.2.5.4.3=agent", Some("agent")),
        (" CN = agent , O = y ", Some("agent")),
        (r"CN=a\,b", Some("a,b")),
        (r"CN=a\2Cb", Some("a,b")),
        ("CN=\"a,b\"", Some("a,b")),
        ("CN=#0c0561646d696e", Some("admin")),
        (r"CN=\#0c0561646d696e", Some("#0c0561646d696e")),
        ("O=x+CN=victim", Some("x")),
        ("CN=agent+O=x", Some("agent")),
        (r"CN=j\C3\BCrgen", Some("j\u{c3}\u{bc}rgen")),
        ("CN=agent;O=y", Some("agent;O")),
        ("commonName=agent", None),
        ("UNKNOWN=1,CN=agent", None),
        ("agent", None),
        ("/CN=agent", Some("agent")),
        ("/O=Org/CN=agent", Some("agent")),
        ("/CN=tester/ inc.", Some("tester")),
        // Some versions throw at these values: one ends with a blank that HTTP has removed, and the others have invalid
        // values or types, or are too long.
        (r"CN=foo,O=.example.com/x\ ", Some("foo,O=.example.com")),
        (r"CN=foo,OU=.example.com/,O=\ ", Some("foo,OU=.example.com")),
        ("CN=a,O=#1E03616263", Some("a,O=#1E03616263")),
        ("CN=a,1.2.3.4=#01020000", Some("a,1.2.3.4=#01020000")),
        ("CN=a,3.16.55.1=#0C0178", Some("a,3.16.55.1=#0C0178")),
        ("CN=a,=#0C0178,O=x", Some("a,=#0C0178,O=x")),
        ("CN=a,C=GER", Some("a,C=GER")),
        (r"CN=a,O=\20x\20", Some("a")),
    ] {
        let read = puppet_server(&headers(dn)).expect("served");
        assert_eq!(read.name.as_deref(), name, "{dn}");
        assert_eq!(read.authenticated, name.is_some(), "{dn}");
    }
    let legacy = |dn: &str| {
        let read = puppet_server_legacy(&headers(dn), "HTTP_X_CLIENT_DN", "HTTP_X_CLIENT_VERIFY");
        read.expect("served").name
    };
    assert_eq!(legacy("CN=agent,O=Org").as_deref(), Some("agent"));
    assert_eq!(legacy("/CN=agent"), None, "malformed there");
}

#[test]
fn mongrel_reads_what_it_was_seen_to_read() {
    for (dn, name) in [
        ("CN=agent,O=Org", Some("agent,O=Org")),
        ("/CN=a/emailAddress=x", Some("a/emailAddress=x")),
        ("/O=Org/CN=agent", Some("agent")),
        ("O=Org,CN=agent", Some("agent")),
        ("O=xCN = victim,CN=agent", Some("victim,CN=agent")),
        ("O=Org", None),
    ] {
        let read = mongrel(&headers(dn), "HTTP_X_CLIENT_DN", "HTTP_X_CLIENT_VERIFY");
        assert_eq!(read.name.as_deref(), name, "{dn}");
    }
}

#[test]
fn rack_reads_what_it_was_seen_to_read() {
    for (dn, name) in [
        ("CN=a,CN=b", Ok(Some("b"))),
        ("/CN=a/CN=b", Ok(Some("a"))),
        ("O=x+CN=v", Ok(None)),
        ("CN=agent,O=Org", Ok(Some("agent"))),
        (r"CN=a\,b", Ok(Some("a,b"))),
        ("STREET=x,CN=a", Ok(None)),
        (r"O=\ x,CN=a", Ok(Some("a"))),
        ("CN=a#b", Ok(Some("a#b"))),
        ("1.2.3.4=#0c0161,CN=a", Ok(Some("a"))),
        ("CN=a,1.2.3.4=#0500", Ok(Some("a"))),
        (r"CN=a,O=b\,c+OU=d", Ok(None)),
        ("CN=a,C", Err(())),
        ("agent", Ok(None)),
    ] {
        let read = rack(
            &headers(dn),
            "HTTP_X_CLIENT_DN",
            "HTTP_X_CLIENT_VERIFY",
            Ruby::New,
        );
        let read = read.map(|reading| reading.name).map_err(drop);
        assert_eq!(read, name.map(|name| name.map(str::to_owned)), "{dn}");
    }
    let old = |dn: &str| ruby_cn(dn, Ruby::Old).map(Option::unwrap_or_default);
    assert_eq!(old("/O=Acme, CN=victim/CN=agent").as_deref(), Ok("victim"));
}
