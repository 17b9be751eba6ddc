//! How the proxy verifies members' certificates.

use std::sync::Arc;
use std::time::Duration;

use crate::support::tls::*;
use crate::support::*;
use identity::{Certname, Reason};
use pki::{
    Block, BlockTarget, ClientVerifier, Credential, DenyList, ListenerCredentials, ListenerPolicy,
    MemberError, MemberNames, Named, Protocols, SerialNumber, TicketKeys, TrustSettings,
    TrustStore, client_config, server_config,
};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error, HandshakeKind, ServerConfig,
};
use rustls_pki_types::CertificateDer;

#[test]
fn a_member_is_verified_by_its_chain_and_a_subject_alternative_name() {
    let puppet = Puppet::new();
    let mut params = leaf_params("c1.example.com", 5);
    params
        .subject_alt_names
        .push(SanType::DnsName("puppet".try_into().unwrap()));
    params
        .subject_alt_names
        .push(SanType::IpAddress([192, 0, 2, 7].into()));
    let member = member(&puppet, &puppet.ca.sign(params));
    for name in ["c1.example.com", "puppet", "192.0.2.7"] {
        dial(name, &trusted(&puppet), &member).unwrap();
    }
    for name in ["c2.example.com", "192.0.2.8"] {
        let text = refused(name, &trusted(&puppet), &member).to_string();
        assert_eq!(
            text,
            format!(
                "the member's certificate CN=c1.example.com is valid for \
                 c1.example.com, puppet, 192.0.2.7, not for {name}; set `server_name` if that is \
                 the member's name"
            )
        );
    }
}

#[test]
fn a_bundle_must_verify_the_current_members_but_not_removed_ones() {
    let (puppet, other) = (Puppet::new(), Puppet::new());
    let member = member(&puppet, &puppet.ca.agent("c1", 5));
    let before = trusted(&puppet);
    dial("c1", &before, &member).unwrap();
    let after = trusted(&other);
    let lost = |is_member: &dyn Fn(&str) -> bool| after.members_lost(&before, is_member, now());
    assert_eq!(lost(&|name| name == "c1"), ["c1"]);
    assert!(lost(&|name| name == "c2").is_empty(), "c1 was removed");
}

#[test]
fn a_member_without_a_subject_alternative_name_gets_a_clear_error() {
    let puppet = Puppet::new();
    let mut params = leaf_params("puppet", 5);
    params.subject_alt_names.clear();
    let error = refused(
        "puppet",
        &trusted(&puppet),
        &member(&puppet, &puppet.ca.sign(params)),
    );
    assert!(matches!(error, MemberError::NoSubjectAltName { .. }));
    assert!(
        error
            .to_string()
            .contains("CN=puppet has no subjectAltName, so "),
        "{error}"
    );
}

#[test]
fn a_bad_member_is_refused_with_its_reason() {
    let puppet = Puppet::new();
    let trust = Arc::new(store(&puppet.bundle(), &puppet.crls(4, &[9])).unwrap());
    let mut client_only = leaf_params("puppet", 5);
    client_only.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    for (leaf, expected, words) in [
        (puppet.ca.agent("puppet", 9), Reason::Revoked, "is revoked"),
        (
            TestCa::root("elsewhere").agent("puppet", 5),
            Reason::UnknownIssuer,
            "CN=elsewhere",
        ),
        (
            puppet.ca.sign(client_only),
            Reason::WrongPurpose,
            "is not valid for server authentication",
        ),
    ] {
        let error = refused("puppet", &trust, &member(&puppet, &leaf));
        let MemberError::Certificate { reason, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*reason, expected);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_member_that_does_not_hold_its_key_is_refused() {
    let puppet = Puppet::new();
    let stolen = puppet.ca.agent("puppet", 5);
    let thief = Leaf {
        der: stolen.der.clone(),
        key: rcgen::KeyPair::generate().unwrap(),
    };
    let mut config = (*member(&puppet, &stolen)).clone();
    let key = rustls::sign::CertifiedKey::new(vec![thief.der.clone()], signing_key(&thief.key));
    config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(key));
    let error = dial("puppet", &trusted(&puppet), &Arc::new(config)).unwrap_err();
    assert_eq!(
        error,
        Error::InvalidCertificate(rustls::CertificateError::BadSignature)
    );
}

#[test]
fn the_proxy_presents_its_credential_to_a_member_that_requests_one() {
    let puppet = Puppet::new();
    let member = member(&puppet, &puppet.ca.agent("puppet", 5));
    let ours = credential(&puppet.ca.agent("proxy", 6));
    let client = client(&trusted(&puppet), Some(&ours));
    let (_, server) = shake(&client, &member);
    assert_eq!(server.unwrap().peer_certificates(), Some(ours.chain()));
}

#[test]
fn a_session_with_a_member_ends_with_the_trust_generation() {
    let puppet = Puppet::new();
    let member = member(&puppet, &puppet.ca.agent("puppet", 5));
    let before = trusted(&puppet);
    let config = client(&before, None);
    let kind = |config: &Arc<ClientConfig>| {
        shake(config, &member)
            .0
            .map(|client| client.handshake_kind())
    };
    assert_eq!(kind(&config), Ok(Some(HandshakeKind::Full)));
    assert_eq!(kind(&config), Ok(Some(HandshakeKind::Resumed)));
    let crls = puppet.crls(2, &[5]);
    let after = store_with(
        &puppet.bundle(),
        &crls,
        &TrustSettings::default(),
        Some(&before),
    )
    .unwrap();
    let error = kind(&client(&Arc::new(after), None)).unwrap_err();
    assert!(
        MemberError::find(&error)
            .unwrap()
            .to_string()
            .contains("is revoked")
    );
}

#[test]
fn the_member_sees_an_alert_too() {
    let puppet = Puppet::new();
    let member = member(&puppet, &TestCa::root("elsewhere").agent("puppet", 5));
    let (_, server) = shake(&client(&trusted(&puppet), None), &member);
    assert_eq!(
        server.unwrap_err(),
        Error::AlertReceived(AlertDescription::CertificateUnknown)
    );
}

#[test]
fn a_credential_without_names_or_with_rights_says_so() {
    let ca = TestCa::root("root");
    let mut params = leaf_params("ca.example.com", 5);
    let mut rights = rcgen::CustomExtension::from_oid_content(
        &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39],
        b"\x0c\x04true".to_vec(),
    );
    rights.set_criticality(false);
    params.custom_extensions.push(rights);
    params
        .subject_alt_names
        .push(SanType::IpAddress([192, 0, 2, 7].into()));
    let full = credential(&ca.sign(params));
    assert_eq!(full.names(), ["ca.example.com", "192.0.2.7"]);
    assert_eq!(full.authorization_extensions(), ["pp_cli_auth"]);
    assert_eq!(full.not_after(), at(2_177_452_800));
    assert!(full.warnings().is_empty());
    let mut params = leaf_params("old", 6);
    params.subject_alt_names.clear();
    let bare = credential(&ca.sign(params));
    assert!(bare.names().is_empty());
    assert!(bare.warnings()[0].contains("has no subjectAltName"));
    assert_ne!(bare.fingerprint(), full.fingerprint());
}

#[test]
fn keys_are_read_in_each_form_and_must_belong_to_the_certificate() {
    let ca = TestCa::root("root");
    for pem_key in [
        include_str!("keys/sec1.pem"),
        include_str!("keys/pkcs1.pem"),
    ] {
        let key = rcgen::KeyPair::from_pem(pem_key).unwrap();
        let leaf = ca.sign_key(&leaf_params("puppet", 5), key);
        let chain = Named::new("cert.pem", pem("CERTIFICATE", &leaf.der).into_bytes());
        Credential::parse(&chain, &Named::new("key.pem", pem_key.into())).unwrap();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let error = Credential::parse(&chain, &Named::new("key.pem", other.into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key \"key.pem\" does not belong to certificate \"cert.pem\" (CN=puppet)"
        );
    }
}

#[test]
fn an_error_about_a_key_contains_no_byte_of_it() {
    let ca = TestCa::root("root");
    let chain = Named::new(
        "cert.pem",
        pem("CERTIFICATE", &ca.agent("puppet", 5).der).into_bytes(),
    );
    for (key, expected) in [
        ("", "key \"key.pem\": contains no key"),
        (
            "-----BEGIN PRIVATE KEY-----\nc2VjcmV0!\n-----END PRIVATE KEY-----\n",
            "key \"key.pem\": not PEM: its base64 is invalid",
        ),
        (
            "-----BEGIN PRIVATE KEY-----c2VjcmV0",
            "key \"key.pem\": not PEM: its BEGIN line is invalid",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "key \"key.pem\": cannot be used: it is encrypted; write it without a password (openssl pkey)",
        ),
    ] {
        let error = Credential::parse(&chain, &Named::new("key.pem", key.into())).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = Credential::parse(&Named::new("cert.pem", b"x".to_vec()), &chain).unwrap_err();
    assert_eq!(
        error.to_string(),
        "certificate \"cert.pem\": contains no certificate"
    );
}

/// A member is simulated by rustls with the configuration of a listener.
fn member(puppet: &Puppet, leaf: &Leaf) -> Arc<ServerConfig> {
    let trust = Arc::new(puppet.store());
    let verifier = ClientVerifier::new(
        ListenerPolicy::default(),
        Arc::new(move || Arc::clone(&trust)),
    );
    let config = server_config(
        "agents",
        Arc::new(verifier),
        &Arc::new(ListenerCredentials::new([&credential(leaf)]).unwrap()),
        &TicketKeys::default(),
        Duration::from_secs(3600),
        Protocols::Http1,
    );
    let mut config = (*config.unwrap().for_connection()).clone();
    config.time_provider = Arc::new(Fixed);
    Arc::new(config)
}

fn trusted(puppet: &Puppet) -> Arc<TrustStore> {
    Arc::new(puppet.store())
}

fn client(trust: &Arc<TrustStore>, credential: Option<&Credential>) -> Arc<ClientConfig> {
    let names = MemberNames {
        indicated: true,
        from_cn: false,
    };
    let mut config = (*client_config(trust, credential, names).unwrap()).clone();
    config.time_provider = Arc::new(Fixed);
    Arc::new(config)
}

fn dial(
    name: &str,
    trust: &Arc<TrustStore>,
    member: &Arc<ServerConfig>,
) -> Result<ClientConnection, Error> {
    shake_for(name, &client(trust, None), member).0
}

fn refused(name: &str, trust: &Arc<TrustStore>, member: &Arc<ServerConfig>) -> MemberError {
    let error = dial(name, trust, member).unwrap_err();
    MemberError::find(&error).unwrap().clone()
}

#[test]
fn a_member_without_a_subject_alternative_name_is_valid_for_its_cn_if_allowed() {
    let puppet = Puppet::new();
    let mut params = leaf_params("Puppet", 5);
    params.subject_alt_names.clear();
    let member = member(&puppet, &puppet.ca.sign(params));
    let by_cn = |name: &str| {
        let names = MemberNames {
            indicated: true,
            from_cn: true,
        };
        let mut config = (*client_config(&trusted(&puppet), None, names).unwrap()).clone();
        config.time_provider = Arc::new(Fixed);
        shake_for(name, &Arc::new(config), &member).0
    };
    by_cn("puppet").unwrap();
    for name in ["master", "192.0.2.7"] {
        let error = by_cn(name).unwrap_err();
        let actual = MemberError::find(&error).unwrap();
        assert!(
            matches!(actual, MemberError::WrongCommonName { .. }),
            "{actual}"
        );
    }
    assert!(MemberError::find(&Error::DecryptError).is_none());
}

#[test]
fn a_member_with_unreadable_names_gets_a_clear_error() {
    let puppet = Puppet::new();
    let mut params = leaf_params("puppet", 5);
    params.subject_alt_names = vec![SanType::Rfc822Name("root@example.com".try_into().unwrap())];
    let member = member(&puppet, &puppet.ca.sign(params));
    let error = refused("puppet", &trusted(&puppet), &member);
    assert!(error.to_string().contains("no readable name"), "{error}");
}

#[test]
fn a_verified_member_is_checked_against_later_crls_and_blocks() {
    let puppet = Puppet::new();
    let own = puppet.ca.agent("puppet", 5).der;
    let fault = |store: &TrustStore, own: &CertificateDer<'_>| {
        let error = store.check_member(own, now()).err()?;
        Some(MemberError::find(&error).unwrap().to_string())
    };
    let listed = |serials: &[u64]| store(&puppet.bundle(), &puppet.crls(4, serials)).unwrap();
    assert_eq!(fault(&listed(&[6]), &own), None);
    let actual = fault(&listed(&[5, 6]), &own).unwrap();
    assert!(actual.contains("is revoked (revoked)"), "{actual}");
    assert!(
        actual.contains("It is on the CRL of CN=Puppet CA: test, number 4."),
        "{actual}"
    );
    // Another CA with that name has its own serials. No verifier accepts bytes that are not a certificate.
    let others = TestCa::root("Puppet CA: test").agent("puppet", 5).der;
    assert_eq!(fault(&listed(&[5]), &others), None);
    assert_eq!(fault(&listed(&[5]), &b"junk".as_slice().into()), None);

    let serial_of = |issuer: &str, serial| BlockTarget::Serial {
        issuer: issuer.to_owned(),
        serial: SerialNumber::parse(serial).unwrap(),
    };
    let name = |name| BlockTarget::Certname(Certname::parse(name).unwrap());
    let print = pki::fingerprint_of(&own);
    for (blocked, meets) in [
        (serial_of("CN=Puppet CA: test", "05"), true),
        (serial_of("CN=Puppet CA: test", "06"), false),
        (serial_of("CN=another", "05"), false),
        (BlockTarget::Fingerprint(print), true),
        (BlockTarget::Fingerprint([0; 32]), false),
        (name("puppet"), true),
        (name("pupp"), false),
    ] {
        let store = puppet.store().with_deny_list(DenyList::new([Block {
            blocked: blocked.clone(),
            why: "stolen".to_owned(),
            by: "uid 0".to_owned(),
            since: at(0),
            until: None,
        }]));
        let actual = fault(&store, &own);
        assert_eq!(actual.is_some(), meets, "{blocked}: {actual:?}");
        assert!(actual.is_none_or(|actual| actual.contains("(blocked)")));
    }
}
