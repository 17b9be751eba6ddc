//! Real TLS 1.2 and 1.3 handshakes in memory: possession of the key, deferred and aborting verdicts, resumption.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::tls::*;
use crate::support::*;
use identity::{ClientIdentity, Reason};
use pki::{
    ClientCert, ClientVerifier, Credential, ListenerCredentials, ListenerPolicy, OnInvalid,
    Protocols, TicketKeys, TrustSettings, TrustStore, handshake_reason, server_config,
};
use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, KeyPair, SigningKey, date_time_ymd};
use rustls::client::Resumption;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError, CipherSuite, ClientConfig, Error, HandshakeKind};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;

const DEFER: ListenerPolicy = ListenerPolicy {
    client_cert: ClientCert::Optional,
    on_invalid: OnInvalid::Defer,
};
const REQUIRED: ListenerPolicy = ListenerPolicy {
    client_cert: ClientCert::Required,
    on_invalid: OnInvalid::Defer,
};
const ABORT: ListenerPolicy = ListenerPolicy {
    client_cert: ClientCert::Optional,
    on_invalid: OnInvalid::Abort,
};

#[test]
fn a_deferred_verdict_follows_a_complete_handshake() {
    let front = Front::new();
    for version in VERSIONS {
        for (leaf, expected) in front.agents() {
            let (client, server) = shake(&front.client(&leaf, version), &front.server(DEFER));
            client.unwrap();
            assert_eq!(front.verdict_of(&server.unwrap()), expected, "{version:?}");
        }
    }
}

#[test]
fn an_aborting_listener_sends_the_right_alert_and_the_record_gets_the_reason() {
    let front = Front::new();
    for version in VERSIONS {
        for (leaf, expected) in front.agents() {
            let (client, server) = shake(&front.client(&leaf, version), &front.server(ABORT));
            let Some(expected) = expected else {
                server.unwrap();
                continue;
            };
            assert_eq!(handshake_reason(&server.unwrap_err()), Some(expected));
            let name = pki::take_refused_name().map(|name| name.to_string());
            let said = match expected {
                Reason::Revoked => "web09",
                Reason::CertificateVersion => "old",
                Reason::Subject => "UPPER",
                _ => "web01",
            };
            assert_eq!(name.as_deref(), Some(said), "{expected}");
            assert_eq!(pki::take_refused_name(), None);
            let alert = match expected {
                Reason::Revoked => AlertDescription::CertificateRevoked,
                Reason::Expired => AlertDescription::CertificateExpired,
                Reason::UnknownIssuer => AlertDescription::UnknownCA,
                Reason::WrongPurpose => AlertDescription::UnsupportedCertificate,
                Reason::CriticalExtension => AlertDescription::BadCertificate,
                _ => AlertDescription::CertificateUnknown,
            };
            assert_eq!(
                client.err(),
                Some(Error::AlertReceived(alert)),
                "{expected} {version:?}"
            );
        }
    }
}

#[test]
fn a_stolen_certificate_without_its_key_ends_in_an_alert_under_every_policy() {
    let front = Front::new();
    let victim = front.puppet.ca.agent("victim", 5);
    let v1 = v1_certificate(&front.puppet.ca, "old", 6);
    for version in VERSIONS {
        for policy in [DEFER, REQUIRED, ABORT] {
            for stolen in [&victim, &v1] {
                let thief = Leaf {
                    der: stolen.der.clone(),
                    key: KeyPair::generate().unwrap(),
                };
                let (client, server) = shake(&front.client(&thief, version), &front.server(policy));
                let error = server.unwrap_err();
                let refused_before = policy == ABORT && std::ptr::eq(stolen, &v1);
                if !refused_before {
                    assert_eq!(
                        error,
                        Error::InvalidCertificate(CertificateError::BadSignature)
                    );
                    assert_eq!(
                        client.err(),
                        Some(Error::AlertReceived(AlertDescription::DecryptError))
                    );
                }
            }
        }
    }
}

#[test]
fn without_a_certificate_a_client_is_anonymous_or_refused() {
    let front = Front::new();
    for version in VERSIONS {
        let anonymous = front.anonymous(version);
        for policy in [DEFER, ABORT] {
            let (_, server) = shake(&anonymous, &front.server(policy));
            let server = server.unwrap();
            let verification = front
                .store()
                .verify(server.peer_certificates().unwrap_or_default(), now());
            assert!(matches!(verification.identity, ClientIdentity::Anonymous));
        }
        let (client, server) = shake(&anonymous, &front.server(REQUIRED));
        assert_eq!(server.unwrap_err(), Error::NoCertificatesPresented);
        assert!(matches!(client, Err(Error::AlertReceived(_))));
    }
}

#[test]
fn a_resumed_session_is_verified_with_the_active_crl() {
    for version in VERSIONS {
        for policy in [DEFER, REQUIRED, ABORT] {
            let front = Front::new();
            let client = front.client(&front.puppet.ca.agent("web01", 5), version);
            let (_, server) = shake(&client, &front.server(policy));
            let server = server.unwrap();
            assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
            assert_eq!(front.verdict_of(&server), None);
            front.swap(&front.puppet.crls(2, &[5]));
            // A reload creates a new configuration. The ticket keys survive it, and so does the session.
            let (_, server) = shake(&client, &front.server(policy));
            let server = server.unwrap();
            assert_eq!(
                server.handshake_kind(),
                Some(HandshakeKind::Resumed),
                "{version:?}"
            );
            assert_eq!(front.verdict_of(&server), Some(Reason::Revoked));
        }
    }
}

/// CVE-2025-23419 (nginx), CVE-2025-23048 (httpd): a session from a listener with weaker requirements was accepted by a
/// listener with stronger requirements.
#[test]
fn cve_2025_23419_a_session_of_one_policy_means_nothing_under_another() {
    for version in VERSIONS {
        for (first, second) in [(DEFER, REQUIRED), (DEFER, ABORT), (REQUIRED, ABORT)] {
            let front = Front::new();
            let client = front.client(&front.puppet.ca.agent("web01", 5), version);
            shake(&client, &front.server(first)).1.unwrap();
            let (_, server) = shake(&client, &front.server(second));
            assert_eq!(
                server.unwrap().handshake_kind(),
                Some(HandshakeKind::Full),
                "{version:?}"
            );
        }
        let front = Front::new();
        let client = front.anonymous(version);
        shake(&client, &front.server(DEFER)).1.unwrap();
        assert_eq!(
            shake(&client, &front.server(REQUIRED)).1.unwrap_err(),
            Error::NoCertificatesPresented
        );
    }
}

#[test]
fn a_listener_that_was_removed_and_added_again_resumes_no_old_session() {
    for version in VERSIONS {
        let front = Front::new();
        let client = front.client(&front.puppet.ca.agent("web01", 5), version);
        let kind = || {
            shake(&client, &front.server(DEFER))
                .1
                .unwrap()
                .handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        front.tickets.retain(|listener| listener == "agents");
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        front.tickets.retain(|listener| listener != "agents");
        assert_eq!(kind(), Some(HandshakeKind::Full), "{version:?}");
    }
}

#[test]
fn debug_output_shows_no_ticket_key() {
    let front = Front::new();
    assert_eq!(format!("{:?}", front.tickets), "TicketKeys { .. }");
    let trust = Arc::clone(&front.trust);
    let current = Arc::new(move || Arc::clone(&trust.lock().unwrap()));
    let verifier = ClientVerifier::new(REQUIRED, current).hinting(&front.store());
    assert_eq!(verifier.policy(), REQUIRED);
    let shown = format!("{verifier:?}");
    assert!(
        shown.starts_with("ClientVerifier { policy: ") && shown.ends_with(", .. }"),
        "{shown}"
    );
    let server = front.server(DEFER);
    let keys = format!("{:?}", server.ticketer);
    assert!(keys.contains("keys: RotatedKeys { .. }"), "{keys}");
    let sessions = format!("{:?}", server.session_storage);
    assert!(sessions.contains("TimedStore { .. }"), "{sessions}");
}

#[test]
fn clients_get_the_trusted_cas_as_hints() {
    let front = Front::new();
    let trust = front.store();
    let current = Arc::new(move || Arc::clone(&trust));
    let verifier = ClientVerifier::new(REQUIRED, current).hinting(&front.store());
    let hints: Vec<_> = rustls::server::danger::ClientCertVerifier::root_hint_subjects(&verifier)
        .iter()
        .map(|name| identity::Subject::name_text(name.as_ref()))
        .collect();
    assert_eq!(hints, ["CN=Puppet CA: test", "CN=Puppet Root CA: test"]);
}

#[test]
fn the_aborting_verifier_loads_the_active_trust_at_each_handshake() {
    let front = Front::new();
    let server = front.server(ABORT);
    let agent = front.puppet.ca.agent("web01", 5);
    let fresh = || front.client(&agent, &TLS13);
    shake(&fresh(), &server).1.unwrap();
    front.swap(&front.puppet.crls(2, &[5]));
    let error = shake(&fresh(), &server).1.unwrap_err();
    assert_eq!(handshake_reason(&error), Some(Reason::Revoked));
}

#[test]
fn a_client_that_sends_too_many_certificates_is_refused() {
    let front = Front::new();
    let agent = front.puppet.ca.agent("web01", 5);
    let key = signing_key(&agent.key);
    for count in [
        pki::PRESENTED_CERTIFICATES_MAX,
        pki::PRESENTED_CERTIFICATES_MAX + 1,
    ] {
        let chain = vec![agent.der.clone(); count];
        let config = client_of(Some(CertifiedKey::new(chain, Arc::clone(&key))), &TLS13);
        let (_, server) = shake(&config, &front.server(DEFER));
        assert_eq!(
            server.is_ok(),
            count == pki::PRESENTED_CERTIFICATES_MAX,
            "{count}"
        );
    }
    let long = CertificateDer::from(vec![0; pki::PRESENTED_BYTES_MAX]);
    let config = client_of(
        Some(CertifiedKey::new(vec![agent.der.clone(), long], key)),
        &TLS13,
    );
    let error = shake(&config, &front.server(DEFER)).1.unwrap_err();
    assert_eq!(handshake_reason(&error), Some(Reason::Malformed));
}

#[test]
fn our_order_of_ciphers_and_http_1_1_alone() {
    let front = Front::new();
    let mut client = (*front.anonymous(&TLS13)).clone();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (_, server) = shake(&Arc::new(client), &front.server(DEFER));
    let server = server.unwrap();
    assert_eq!(server.alpn_protocol(), Some(&b"http/1.1"[..]));
    let suite = server.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    let config = front.server(DEFER);
    assert_eq!(
        (config.send_tls13_tickets, config.max_early_data_size),
        (1, 0)
    );
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// The listener's side: replaceable trust, one credential, and one set of ticket keys.
struct Front {
    puppet: Puppet,
    trust: Arc<Mutex<Arc<TrustStore>>>,
    credential: Credential,
    tickets: TicketKeys,
}

impl Front {
    fn new() -> Self {
        let puppet = Puppet::new();
        let store = store(&puppet.bundle(), &puppet.crls(1, &[9])).unwrap();
        let credential = credential(&puppet.ca.agent("puppet", 3));
        Self {
            trust: Arc::new(Mutex::new(Arc::new(store))),
            puppet,
            credential,
            tickets: TicketKeys::default(),
        }
    }

    fn store(&self) -> Arc<TrustStore> {
        Arc::clone(&self.trust.lock().unwrap())
    }

    fn swap(&self, crls: &[rustls_pki_types::CertificateRevocationListDer<'_>]) {
        let before = self.store();
        let after = store_with(
            &self.puppet.bundle(),
            crls,
            &TrustSettings::default(),
            Some(&before),
        );
        *self.trust.lock().unwrap() = Arc::new(after.unwrap());
    }

    fn server(&self, policy: ListenerPolicy) -> Arc<ServerConfig> {
        let trust = Arc::clone(&self.trust);
        let verifier =
            ClientVerifier::new(policy, Arc::new(move || Arc::clone(&trust.lock().unwrap())));
        let config = server_config(
            "agents",
            Arc::new(verifier),
            &Arc::new(ListenerCredentials::new([&self.credential]).unwrap()),
            &self.tickets,
            Duration::from_secs(3600),
            Protocols::Http1,
        );
        let mut config = (*config.unwrap().for_connection()).clone();
        config.time_provider = Arc::new(Fixed);
        Arc::new(config)
    }

    fn client(&self, leaf: &Leaf, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        client_of(
            Some(CertifiedKey::new(
                vec![leaf.der.clone()],
                signing_key(&leaf.key),
            )),
            version,
        )
    }

    fn anonymous(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        client_of(None, version)
    }

    fn verdict_of(&self, server: &ServerConnection) -> Option<Reason> {
        reason(
            &self
                .store()
                .verify(server.peer_certificates().unwrap(), now()),
        )
    }

    /// One agent of each kind, and the verdict on it.
    fn agents(&self) -> Vec<(Leaf, Option<Reason>)> {
        let ca = &self.puppet.ca;
        let with = |change: fn(&mut rcgen::CertificateParams)| {
            let mut params = leaf_params("web01", 5);
            change(&mut params);
            ca.sign(params)
        };
        vec![
            (ca.agent("web01", 5), None),
            (ca.agent("web09", 9), Some(Reason::Revoked)),
            (
                with(|p| p.not_after = date_time_ymd(2029, 1, 1)),
                Some(Reason::Expired),
            ),
            (
                TestCa::root("elsewhere").agent("web01", 5),
                Some(Reason::UnknownIssuer),
            ),
            (
                with(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
                Some(Reason::WrongPurpose),
            ),
            (
                with(|p| {
                    let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                    unknown.set_criticality(true);
                    p.custom_extensions.push(unknown);
                }),
                Some(Reason::CriticalExtension),
            ),
            (
                v1_certificate(ca, "old", 5),
                Some(Reason::CertificateVersion),
            ),
            (ca.agent("UPPER", 5), Some(Reason::Subject)),
        ]
    }
}

/// A client that accepts any server, because these tests are about the verification of clients.
fn client_of(
    key: Option<CertifiedKey>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(&[version])
    .unwrap()
    .dangerous()
    .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match key {
        Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(8);
    config.time_provider = Arc::new(Fixed);
    Arc::new(config)
}

/// A v3 certificate without its version and extensions, signed again. This makes it X.509 v1.
fn v1_certificate(ca: &TestCa, name: &str, serial: u64) -> Leaf {
    let leaf = ca.agent(name, serial);
    let tbs = inner(inner(&leaf.der));
    let mut kept = Vec::new();
    let mut rest = tbs;
    while !rest.is_empty() {
        let (element, after) = split(rest);
        if !matches!(element[0], 0xa0 | 0xa3) {
            kept.extend_from_slice(element);
        }
        rest = after;
    }
    let tbs = wrap(0x30, &kept);
    let (_, after_tbs) = split(inner(&leaf.der));
    let (algorithm, _) = split(after_tbs);
    let signature = ca.issuer.key().sign(&tbs).unwrap();
    let bits = wrap(0x03, &[&[0][..], &signature].concat());
    let der = wrap(0x30, &[&tbs[..], algorithm, &bits].concat());
    Leaf {
        der: der.into(),
        key: leaf.key,
    }
}

/// Splits off the first element. Lengths in these tests have at most two bytes.
fn split(der: &[u8]) -> (&[u8], &[u8]) {
    let (start, length) = match der[1] {
        0x81 => (3, usize::from(der[2])),
        0x82 => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
        length => (2, usize::from(length)),
    };
    der.split_at(start + length)
}

/// The content of the first element.
fn inner(der: &[u8]) -> &[u8] {
    let (element, _) = split(der);
    let start = match element[1] {
        0x81 => 3,
        0x82 => 4,
        _ => 2,
    };
    &element[start..]
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    match u16::try_from(content.len()).unwrap() {
        short @ 0..=0x7f => der.push(short as u8),
        middle @ 0x80..=0xff => der.extend([0x81, middle as u8]),
        long => {
            der.push(0x82);
            der.extend(long.to_be_bytes());
        }
    }
    der.extend_from_slice(content);
    der
}
