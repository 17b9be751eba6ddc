//! The Puppet CA of these tests. It is created once, because generating keys takes longer than everything else.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use listener::{ActiveListener, ClientVerdict, ListenerSettings, ListenerTls};
use pki::{
    ClientVerifier, ListenerCredentials, ListenerPolicy, Named, Protocols, TicketKeys,
    TrustMaterial, TrustSettings, TrustStore,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use testkit::{Ca, TestCredential};

/// Certificates of one CA, and trust stores for that CA.
pub struct Trusted {
    /// An agent that is never revoked.
    pub web01: TestCredential,
    /// An agent that `without_web02` refuses.
    pub web02: TestCredential,
    /// The trust store that accepts both agents.
    pub store: Arc<TrustStore>,
    /// The next trust store, in which `web02` is revoked.
    pub without_web02: Arc<TrustStore>,
    /// The same trust as `store`, without any agent seen so far.
    pub unused: Arc<TrustStore>,
    credential: TestCredential,
}

/// Returns the same value to all tests of this binary.
pub fn trusted() -> &'static Trusted {
    static TRUSTED: OnceLock<Trusted> = OnceLock::new();
    TRUSTED.get_or_init(|| {
        let ca = Ca::new();
        let (web01, web02) = (ca.agent("web01"), ca.agent("web02"));
        let (both, unused) = (store(&ca, None), store(&ca, None));
        ca.revoke(&web02);
        Trusted {
            web01,
            web02,
            credential: ca.server("puppet"),
            without_web02: Arc::new(store(&ca, Some(&both))),
            store: Arc::new(both),
            unused: Arc::new(unused),
        }
    })
}

fn named(name: &str, text: String) -> Named<Vec<u8>> {
    Named {
        name: name.to_owned(),
        value: text.into_bytes(),
    }
}

fn store(ca: &Ca, previous: Option<&TrustStore>) -> TrustStore {
    let material = TrustMaterial {
        bundle: vec![named("ca_crt.pem", ca.bundle_pem())],
        crls: vec![named("ca_crl.pem", ca.crl_pem())],
        copied_crls: Vec::new(),
    };
    let (settings, subjects) = (
        TrustSettings::default(),
        identity::IdentitySettings::default(),
    );
    TrustStore::build(&material, &settings, &subjects, previous).expect("trust in the test's CA")
}

impl Trusted {
    /// The verdict on a client at its handshake. `None`: the client presents no certificate.
    pub fn standing(&self, client: Option<&TestCredential>) -> ClientVerdict {
        let presented: Vec<_> = client
            .map(|credential| CertificateDer::from(credential.cert_der.clone()))
            .into_iter()
            .collect();
        ClientVerdict::verify(&self.store, &presented, UnixTime::now())
    }

    /// A listener without handshakes, because the tests use only its limits.
    pub fn listener(&self, settings: ListenerSettings) -> ActiveListener {
        let chain = named("chain", self.credential.chain_pem());
        let key = named("key", self.credential.key_pem.clone());
        let credential = pki::Credential::parse(&chain, &key).expect("a credential");
        let credentials = Arc::new(ListenerCredentials::new([&credential]).expect("a certificate"));
        let store = Arc::clone(&self.store);
        let verifier = ClientVerifier::new(
            ListenerPolicy::default(),
            Arc::new(move || Arc::clone(&store)),
        );
        let tls = pki::server_config(
            &settings.name,
            Arc::new(verifier),
            &credentials,
            &TicketKeys::default(),
            Duration::from_secs(3600),
            Protocols::Http2,
        );
        ActiveListener {
            settings,
            tls: Some(ListenerTls {
                config: tls.expect("a TLS configuration"),
                credentials,
            }),
        }
    }
}
