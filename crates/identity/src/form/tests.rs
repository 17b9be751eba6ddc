//! Names that may be given to our headers.

use super::*;

#[test]
fn a_name_that_means_something_else_to_anybody_is_refused() {
    use NameError::{Character, Forwarding, Length, Taken};
    let taken = |name: &str| Taken(name.to_owned());
    let forwarding = |name: &str| Forwarding(name.to_owned());
    let long = "a".repeat(65);
    for (name, expected) in [
        ("", Length),
        (&*long, Length),
        ("X_Client_DN", Character('_')),
        ("X.Client.DN", Character('.')),
        ("X Client", Character(' ')),
        ("X-Client\r\nHost", Character('\r')),
        ("\u{fc}", Character('\u{fc}')),
        ("-X", Character('-')),
        ("X-", Character('-')),
        ("Host", taken("Host")),
        ("HOST", taken("HOST")),
        ("Connection", taken("Connection")),
        ("Keep-Alive", taken("Keep-Alive")),
        ("Transfer-Encoding", taken("Transfer-Encoding")),
        ("Content-Length", taken("Content-Length")),
        ("Content-Type", taken("Content-Type")),
        ("Expect", taken("Expect")),
        ("TE", taken("TE")),
        ("Proxy", taken("Proxy")),
        ("Proxy-Connection", taken("Proxy-Connection")),
        ("Accept", taken("Accept")),
        ("If-None-Match", taken("If-None-Match")),
        ("Authorization", taken("Authorization")),
        ("X-Authentication", taken("X-Authentication")),
        ("X-Puppet-Version", taken("X-Puppet-Version")),
        ("X-Request-Id", taken("X-Request-Id")),
        ("HTTP-X-Client-DN", taken("HTTP-X-Client-DN")),
        ("Client-Cert", taken("Client-Cert")),
        ("Forwarded", forwarding("Forwarded")),
        ("X-Forwarded-For", forwarding("X-Forwarded-For")),
        (
            "X-Forwarded-Client-Cert",
            forwarding("X-Forwarded-Client-Cert"),
        ),
        ("X-Real-IP", forwarding("X-Real-IP")),
    ] {
        assert_eq!(IdentityName::parse(name), Err(expected), "{name:?}");
    }
}

#[test]
fn names_that_old_front_ends_used_are_taken_as_they_are() {
    for (name, role) in [
        ("X-SSL-Subject", Some(HeaderRole::Dn)),
        ("x-ssl-client-cert", Some(HeaderRole::Cert)),
        ("X-CLIENT-VERIFY", Some(HeaderRole::Verify)),
        ("SSL-Client-S-DN", Some(HeaderRole::Dn)),
        ("Site-Agent", None),
        ("X-Our-Verdict", None),
    ] {
        let parsed = IdentityName::parse(name).expect(name);
        assert_eq!(parsed.as_str(), name.to_ascii_lowercase());
        assert_eq!(parsed.known_role(), role, "{name}");
    }
}

#[test]
fn names_of_the_default_form_are_no_names_of_our_own() {
    let own = OwnNames::of([&HeaderForm::default()]);
    assert_eq!(own.renamed().count(), 0);
    assert!(!own.holds(b"x-client-dn"), "scrub knows it by itself");
}

#[test]
fn everything_is_called_what_the_configuration_calls_it() {
    let formats = [DnFormat::Rfc2253, DnFormat::OpenSsl, DnFormat::CnLast];
    assert_eq!(
        formats.map(|format| format.to_string()),
        ["rfc2253", "openssl", "cn-last"]
    );
    let roles = [HeaderRole::Verify, HeaderRole::Dn, HeaderRole::Cert];
    assert_eq!(
        roles.map(|role| role.to_string()),
        ["the verdict", "the subject", "the certificate"]
    );
    let name = IdentityName::parse("X-Agent-Name").expect("a name");
    assert_eq!(
        (name.to_string().as_str(), name.as_str()),
        ("X-Agent-Name", "x-agent-name")
    );
    let usual =
        [CertFormat::Escaped, CertFormat::OneLine].map(|format| format.usual_name().to_string());
    assert_eq!(usual, ["X-Client-Cert", "X-SSL-Client-Cert"]);
}

#[test]
fn a_set_of_formats_holds_those_it_was_made_of_and_rfc_2253() {
    let set = |formats: &[DnFormat]| formats.iter().copied().collect::<DnFormats>();
    for (formats, openssl, cn_last) in [
        (&[][..], false, false),
        (&[DnFormat::Rfc2253], false, false),
        (&[DnFormat::OpenSsl, DnFormat::Rfc2253], true, false),
        (&[DnFormat::CnLast, DnFormat::Rfc2253], false, true),
        (&[DnFormat::CnLast, DnFormat::OpenSsl], true, true),
    ] {
        let set = set(formats);
        assert!(set.contains(DnFormat::Rfc2253));
        assert_eq!(set.contains(DnFormat::OpenSsl), openssl, "{formats:?}");
        assert_eq!(set.contains(DnFormat::CnLast), cn_last, "{formats:?}");
    }
}

#[test]
fn a_form_names_each_of_its_headers_with_what_it_tells() {
    let form = HeaderForm {
        dn: ["X-A", "X-B"]
            .map(|name| IdentityName::parse(name).expect(name))
            .to_vec(),
        ..HeaderForm::default()
    };
    let names: Vec<_> = form
        .names()
        .map(|(name, role)| (name.as_str(), role))
        .collect();
    assert_eq!(
        names,
        [
            ("x-client-verify", HeaderRole::Verify),
            ("x-client-cert", HeaderRole::Cert),
            ("x-a", HeaderRole::Dn),
            ("x-b", HeaderRole::Dn),
        ]
    );
    // Names that several pools have count once, whatever their case.
    let again = HeaderForm {
        dn: vec![IdentityName::parse("x-B").expect("a name")],
        ..HeaderForm::default()
    };
    let own = OwnNames::of([&form, &again]);
    let renamed: Vec<_> = own.renamed().map(HeaderName::as_str).collect();
    assert_eq!(renamed, ["x-a", "x-b"]);
    assert!(own.holds(b"X_A") && own.holds(b"x.b") && !own.holds(b"x-c"));
}

#[test]
fn the_longest_name_is_one_still() {
    let longest = "a".repeat(IdentityName::BYTES_MAX);
    assert!(IdentityName::parse(&longest).is_ok());
}

#[test]
fn only_names_that_scrubbing_does_not_know_are_kept_for_it() {
    let form = HeaderForm {
        dn: ["X-SSL-Subject", "Site-Agent"]
            .map(|name| IdentityName::parse(name).expect(name))
            .to_vec(),
        ..HeaderForm::default()
    };
    let own = OwnNames::of([&form]);
    assert!(own.holds(b"site_agent") && !own.holds(b"x-ssl-subject"));
    assert_eq!(own.renamed().count(), 2, "of responses both are removed");
}
