//! Legacy signatures, tested with the fixtures: only the named CA may use them.

use std::net::TcpStream;
use std::sync::Arc;

use crate::support::*;
use identity::Reason;
use pki::{MemberError, MemberNames, TrustSettings, TrustStore, client_config};
use rustls::{ClientConnection, Error};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use testkit::{StandIn, TestCredential};

macro_rules! fixtures {
    ($($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../ssl-fixtures/", $name)))),+]
    };
}

const FIXTURES: &[(&str, &str)] = fixtures![
    "ca-bundle.pem",
    "old-ca.pem",
    "old-sub-ca.pem",
    "small-ca.pem",
    "crl-before.pem",
    "old-crl.pem",
    "old-crl-revoked.pem",
    "small-crl.pem",
    "old-agent.pem",
    "old-sub-agent.pem",
    "old-small.pem",
    "small-agent.pem",
    "rsa1024.pem",
    "rsa2048.pem",
    "sha1.pem",
    "small-server.pem",
    "small-server.key"
];

const OLD: &str = "CN=Puppet CA: old.lab.test";
const BELOW_OLD: &str = "CN=Puppet CA: below old.lab.test";
const SMALL: &str = "CN=Puppet CA: small.lab.test";
/// The issuer of the fixtures' ordinary agents.
const LAB: &str = "CN=Puppet CA: lab";

#[test]
fn only_chains_of_the_named_ca_may_use_legacy_signatures() {
    for (named, passing) in [
        ("", &[][..]),
        (
            OLD,
            &["old-agent.pem", "old-sub-agent.pem", "old-small.pem"],
        ),
        // A CA that is not named has signed the CA's own certificate with SHA-1.
        (BELOW_OLD, &[]),
        (SMALL, &["small-agent.pem"]),
        // Only the leaf's signature uses SHA-1, and only its key is small.
        (LAB, &["sha1.pem", "rsa1024.pem"]),
    ] {
        let store = store_naming(named, "old-crl.pem");
        assert_eq!(store.legacy_cas().collect::<Vec<_>>().join(""), named);
        for agent in [
            "old-agent.pem",
            "old-sub-agent.pem",
            "old-small.pem",
            "small-agent.pem",
            "sha1.pem",
            "rsa1024.pem",
        ] {
            let expected = if passing.contains(&agent) {
                None
            } else {
                Some(Reason::UnsupportedAlgorithm)
            };
            assert_eq!(
                fixture_verdict(&store, agent),
                expected,
                "{agent} with {named:?} named"
            );
        }
        assert_eq!(fixture_verdict(&store, "rsa2048.pem"), None);
    }
}

#[test]
fn a_sha1_crl_is_used_if_its_ca_is_named_and_is_a_warning_otherwise() {
    let named = store_naming(OLD, "old-crl-revoked.pem");
    assert_eq!(
        fixture_verdict(&named, "old-agent.pem"),
        Some(Reason::Revoked)
    );
    assert_eq!(fixture_verdict(&named, "old-sub-agent.pem"), None);
    let not_named = store_naming("", "old-crl.pem");
    let is_warned = |words: &str| {
        not_named
            .warnings()
            .iter()
            .any(|warning| warning.contains(words))
    };
    for words in [
        "old-crl.pem\" block 1 is not used: it is signed with SHA-1 or an RSA key under 2048 bits",
        "small-crl.pem\" block 1 is not used: it is signed with SHA-1 or an RSA key under 2048 bits",
    ] {
        assert!(is_warned(words), "{words}: {:?}", not_named.warnings());
    }
}

#[test]
fn removing_a_name_restores_the_earlier_verdicts() {
    let named = store_naming(OLD, "old-crl.pem");
    let accepted = named.verify(&[certificate("old-agent.pem")], now());
    assert_eq!(reason(&accepted), None);
    let without = built("", "old-crl.pem", Some(&named));
    assert!(without.generation() > named.generation());
    let lists_of = |store: &TrustStore| {
        let crls = store.status(now()).crls;
        crls.iter().filter(|crl| crl.issuer == OLD).count()
    };
    assert_eq!((lists_of(&named), lists_of(&without)), (1, 0));
    assert_eq!(
        reason(&without.reverify(&accepted, now())),
        Some(Reason::UnsupportedAlgorithm)
    );
}

#[test]
fn a_forged_signature_is_wrong_under_a_named_ca_too() {
    let store = store_naming(OLD, "old-crl.pem");
    let mut forged = certificate("old-agent.pem").to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let verification = store.verify(&[forged.into()], now());
    assert_eq!(
        reason(&verification),
        Some(Reason::UnsupportedAlgorithm),
        "as if no CA were named"
    );
    // A signature by another key of the same size is refused.
    let mut renamed = certificate("old-sub-agent.pem").to_vec();
    *renamed.last_mut().unwrap() ^= 1;
    assert!(reason(&store.verify(&[renamed.into()], now())).is_some());
}

#[test]
fn a_member_of_a_small_key_is_spoken_to_in_tls_12_where_its_ca_is_named() {
    let text = |name: &str| file(name).to_owned();
    let credential = TestCredential::from_pem(
        "small-server",
        &text("small-server.pem"),
        &text("small-server.key"),
    );
    let member = StandIn::builder("small").small_tls(&credential).start();
    let shaken = |named: &str| {
        let names = MemberNames {
            indicated: true,
            from_cn: false,
        };
        let trust = Arc::new(store_naming(named, "old-crl.pem"));
        let config = client_config(&trust, None, names).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut connection = ClientConnection::new(config, name).unwrap();
        let mut socket = TcpStream::connect(member.address()).unwrap();
        let outcome = connection.complete_io(&mut socket).map(drop);
        outcome.map_err(|error| error.downcast::<Error>().unwrap())
    };
    shaken(SMALL).unwrap();
    for named in [OLD, ""] {
        let error = shaken(named).unwrap_err();
        assert!(MemberError::find(&error).is_some(), "{named:?}: {error}");
    }
}

fn fixture_verdict(store: &TrustStore, leaf: &str) -> Option<Reason> {
    reason(&store.verify(&[certificate(leaf)], now()))
}

/// A store with every CA of the fixtures. One of the CAs is named, or none.
fn store_naming(named: &str, old_crl: &str) -> TrustStore {
    built(named, old_crl, None)
}

fn built(named: &str, old_crl: &str, previous: Option<&TrustStore>) -> TrustStore {
    let bytes = |names: &[&str]| {
        let named = names
            .iter()
            .map(|name| pki::Named::new(*name, file(name).as_bytes().to_vec()));
        named.collect()
    };
    let material = pki::TrustMaterial {
        bundle: bytes(&[
            "ca-bundle.pem",
            "old-ca.pem",
            "old-sub-ca.pem",
            "small-ca.pem",
        ]),
        crls: bytes(&["crl-before.pem", old_crl, "small-crl.pem"]),
        ..pki::TrustMaterial::default()
    };
    let settings = TrustSettings {
        legacy_signatures: Some(named.to_owned())
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect(),
        ..TrustSettings::default()
    };
    TrustStore::build(
        &material,
        &settings,
        &identity::IdentitySettings::default(),
        previous,
    )
    .unwrap()
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(file(name).as_bytes()).unwrap()
}

fn file(name: &str) -> &'static str {
    FIXTURES.iter().find(|(known, _)| *known == name).unwrap().1
}
