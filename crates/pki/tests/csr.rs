//! Checks of certificate requests: the rules of `[csr]`, exceptions from them, and the messages of refusals.

use crate::support::requests::*;
use identity::CertnamePattern;
use pki::{CsrAllow, CsrKey, CsrPolicy, CsrRule, CsrSettings};

use CsrRule::{Altnames, Authorization, Extensions, Key, Name, Signature, Unreadable};

#[test]
fn requests_of_agents_pass_unless_they_request_more() {
    let policy = CsrPolicy::default();
    for (name, expected) in [
        ("plain", None),
        ("attributes", None),
        ("cli-auth", Some(Authorization)),
        ("altnames", Some(Altnames)),
    ] {
        let checked = policy.check(&format!("{name}.lab.test"), &fixture(name));
        assert_eq!(
            checked.err().map(|refusal| refusal.rule),
            expected,
            "{name}"
        );
        let other = policy.check("web01", &fixture(name));
        assert_eq!(
            other.err().map(|refusal| refusal.rule),
            Some(Name),
            "{name}"
        );
    }
}

#[test]
fn every_accepted_kind_of_key_passes_and_other_kinds_are_named_in_the_refusal() {
    for signer in [
        Signer::p256(),
        Signer::p384(),
        Signer::p521(),
        Signer::ed25519(),
    ] {
        check("admitted", &pem(&signer.request(&web01(), &[])), None);
    }
    let ed25519_alone = CsrPolicy::new(CsrSettings {
        keys: vec![CsrKey::Ed25519],
        ..CsrSettings::default()
    });
    let body = pem(&Signer::ed25519().request(&web01(), &[]));
    check_by(&ed25519_alone, "the one kind", &body, None);
    let body = pem(&Signer::p256().request(&web01(), &[]));
    check_by(&ed25519_alone, "another kind", &body, Some(Key));
    let long = CsrPolicy::new(CsrSettings {
        rsa_bits_min: 3072,
        ..CsrSettings::default()
    });
    let short = long.check("attributes.lab.test", &fixture("attributes"));
    assert_eq!(short.err().map(|refusal| refusal.rule), Some(Key));
    assert_eq!(long.check("plain.lab.test", &fixture("plain")), Ok(()));
}

#[test]
fn a_request_truncated_at_any_byte_is_refused_without_a_panic() {
    let attributes = [
        attribute(CHALLENGE, &[element(UTF8, b"x")]),
        asking(&[puppet_extension(&[1, 1]), dns(&["web01"])]),
    ];
    let der = Signer::p256().request(&web01(), &attributes);
    let whole = pem(&der);
    check("whole", &whole, None);
    for cut in 0..der.len() {
        check("DER cut", &pem(&der[..cut]), Some(Unreadable));
    }
    for cut in 0..whole.len() - 1 {
        let body = &whole[..cut];
        assert!(
            CsrPolicy::default().check("web01", body).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_request_with_any_byte_changed_is_refused() {
    let der = Signer::p256().request(&web01(), &[asking(&[puppet_extension(&[1, 1])])]);
    let policy = CsrPolicy::default();
    for at in 0..der.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = der.clone();
            changed[at] ^= flip;
            assert!(
                policy.check("web01", &pem(&changed)).is_err(),
                "byte {at} ^ {flip:02x}"
            );
        }
    }
}

#[test]
fn a_request_of_16_kib_is_checked_like_any_other() {
    let key = Signer::p256();
    let filled = |bytes: usize| {
        let secret = attribute(CHALLENGE, &[element(UTF8, &vec![b'x'; bytes])]);
        pem(&key.request(&web01(), &[secret]))
    };
    let room = (1..12_000)
        .rev()
        .find(|bytes| filled(*bytes).len() <= 16 << 10);
    let body = filled(room.expect("some size fits"));
    assert!(body.len() > (16 << 10) - 8, "{}", body.len());
    check("16 KiB", &body, None);
    let deep = (0..4000).fold(Vec::new(), |inner, _| element(SEQUENCE, &inner));
    check(
        "thousands of nested SEQUENCEs",
        &pem(&deep),
        Some(Unreadable),
    );
}

#[test]
fn a_rule_is_skipped_alone_and_only_for_named_clients() {
    let key = Signer::p256();
    let cli_auth = pem(&key.request(&web01(), &[asking(&[puppet_extension(&[3, 39])])]));
    let both = pem(&key.request(
        &web01(),
        &[asking(&[puppet_extension(&[3, 39]), dns(&["puppet"])])],
    ));
    let weak = pem(&Signer::p256().sign(key.info(&[0], &web01(), &[])));
    let skipping = |pattern: &str, skip_rules: &[CsrRule]| {
        CsrPolicy::new(CsrSettings {
            allow: vec![CsrAllow {
                certname: vec![CertnamePattern::parse(pattern).expect("a pattern")],
                skip_rules: skip_rules.to_vec(),
            }],
            ..CsrSettings::default()
        })
    };
    check_by(
        &skipping("web*", &[Authorization]),
        "lifted",
        &cli_auth,
        None,
    );
    check_by(
        &skipping("db*", &[Authorization]),
        "for others",
        &cli_auth,
        Some(Authorization),
    );
    check_by(
        &skipping("web*", &[Altnames]),
        "another rule",
        &cli_auth,
        Some(Authorization),
    );
    check_by(
        &skipping("web*", &[Authorization]),
        "one of two",
        &both,
        Some(Altnames),
    );
    check_by(
        &skipping("*", &[Authorization, Altnames]),
        "both",
        &both,
        None,
    );
    check_by(&skipping("*", &[Signature]), "the signature", &weak, None);
    let all = skipping("*", &CsrRule::LIFTABLE);
    check_by(
        &all,
        "never the name",
        &pem(&key.request(&[cn(UTF8, b"web02")], &[])),
        Some(Name),
    );
    let two = with_two_attributes(&key);
    check_by(&all, "never what reads two ways", &two, Some(Unreadable));
}

fn with_two_attributes(key: &Signer) -> Vec<u8> {
    let one = || asking(&[puppet_extension(&[1, 1])]);
    pem(&key.request(&web01(), &[one(), one()]))
}

#[test]
fn a_refusal_names_the_extension_and_its_oid() {
    let key = Signer::p256();
    let text_of = |extension| {
        let body = pem(&key.request(&web01(), &[asking(&[extension])]));
        let refusal = CsrPolicy::default()
            .check("web01", &body)
            .expect_err("it asks");
        refusal.what
    };
    assert_eq!(
        text_of(puppet_extension(&[3, 39])),
        "it requests pp_cli_auth (1.3.6.1.4.1.34380.1.3.39), which grants rights on the servers"
    );
    assert_eq!(
        text_of(puppet_extension(&[3, 0x81, 0x48])),
        "it requests 1.3.6.1.4.1.34380.1.3.200, which may grant rights on the servers"
    );
    let unknown = text_of(extension(&[0x2a, 0x03, 0x84, 0x80, 0x05], true, b"x"));
    assert!(unknown.contains("1.2.3.65541"), "{unknown}");
}

#[test]
fn a_refusal_explains_the_rule_and_the_remedy_and_whether_the_operator_can_skip_it() {
    let rules = [
        Unreadable,
        Name,
        Key,
        Signature,
        Authorization,
        Altnames,
        Extensions,
    ];
    for rule in rules {
        assert_eq!(rule.reason(), format!("csr-{}", rule.as_str()));
        let refusal = pki::CsrRefusal {
            rule,
            what: "it is so".to_owned(),
        };
        let text = refusal.to_string();
        assert!(
            text.starts_with(
                "The proxy did not forward this certificate request to the CA: it is so. "
            ),
            "{text}"
        );
        assert!(text.contains("puppet ssl clean"), "{text}");
        let liftable = text.contains("contact the operator of this proxy");
        assert_eq!(liftable, CsrRule::LIFTABLE.contains(&rule), "{text}");
        // Any client can read this message, so it never explains how to relax the rules of the proxy.
        assert!(!text.contains("[["), "{text}");
    }
}

#[test]
fn kinds_of_keys_have_the_names_of_the_configuration() {
    let words = CsrKey::ALL.map(CsrKey::as_str);
    assert_eq!(
        words,
        ["rsa", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519"]
    );
}

#[test]
fn an_observing_policy_gives_the_same_verdict() {
    let settings = CsrSettings {
        observe: true,
        ..CsrSettings::default()
    };
    let observing = CsrPolicy::new(settings);
    assert!(observing.observes() && !CsrPolicy::default().observes());
    check_by(&observing, "nothing", b"", Some(Unreadable));
}
