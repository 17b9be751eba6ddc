//! Generated CAs, agents and CRLs, and a trust store with them.
#![expect(unreachable_pub, reason = "for the modules of this binary")]

pub mod crls;
pub mod requests;
pub mod tls;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use identity::{ClientIdentity, Reason, Refusal};
use pki::{
    ChainVerification, CrlExpired, Named, PkiProblem, TrustMaterial, TrustSettings, TrustStore,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};

/// 2030-01-01. Every test certificate is valid then, unless the test says otherwise.
pub fn now() -> UnixTime {
    at(1_893_456_000)
}

pub fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

pub const IN_2041: u64 = 2_240_524_800;

/// A certificate and its key.
pub struct Leaf {
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
}

/// A certificate authority.
pub struct TestCa {
    pub der: CertificateDer<'static>,
    pub issuer: Issuer<'static, KeyPair>,
}

pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params
}

/// A certificate in the format of Puppet's CA: one CN, one DNS name, both purposes.
pub fn leaf_params(name: &str, serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2039, 1, 1);
    params
}

impl TestCa {
    pub fn root(name: &str) -> Self {
        Self::root_with(ca_params(name), KeyPair::generate().unwrap())
    }

    pub fn root_with(params: CertificateParams, key: KeyPair) -> Self {
        let der = params.self_signed(&key).unwrap().der().clone();
        Self {
            der,
            issuer: Issuer::new(params, key),
        }
    }

    pub fn intermediate(&self, name: &str, serial: u64) -> Self {
        self.intermediate_with(ca_params(name), KeyPair::generate().unwrap(), serial)
    }

    pub fn intermediate_with(
        &self,
        mut params: CertificateParams,
        key: KeyPair,
        serial: u64,
    ) -> Self {
        params.serial_number = Some(SerialNumber::from(serial));
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self {
            der,
            issuer: Issuer::new(params, key),
        }
    }

    pub fn agent(&self, name: &str, serial: u64) -> Leaf {
        self.sign(leaf_params(name, serial))
    }

    pub fn sign(&self, params: CertificateParams) -> Leaf {
        self.sign_key(&params, KeyPair::generate().unwrap())
    }

    pub fn sign_key(&self, params: &CertificateParams, key: KeyPair) -> Leaf {
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Leaf { der, key }
    }

    /// A CRL that is valid until 2040.
    pub fn crl(&self, number: u64, serials: &[u64]) -> CertificateRevocationListDer<'static> {
        self.crl_until(number, serials, 2040)
    }

    pub fn crl_until(
        &self,
        number: u64,
        serials: &[u64],
        year: i32,
    ) -> CertificateRevocationListDer<'static> {
        crl_params(number, serials, year)
            .signed_by(&self.issuer)
            .unwrap()
            .der()
            .clone()
    }
}

pub fn crl_params(number: u64, serials: &[u64], year: i32) -> CertificateRevocationListParams {
    CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: serials
            .iter()
            .map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(*serial),
                revocation_time: date_time_ymd(2021, 1, 1),
                reason_code: None,
                invalidity_date: None,
            })
            .collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
}

/// The two levels of a CA of Puppet 6 and later.
pub struct Puppet {
    pub root: TestCa,
    pub ca: TestCa,
}

impl Puppet {
    pub fn new() -> Self {
        let root = TestCa::root("Puppet Root CA: test");
        let ca = root.intermediate("Puppet CA: test", 2);
        Self { root, ca }
    }

    pub fn bundle(&self) -> Vec<CertificateDer<'static>> {
        vec![self.ca.der.clone(), self.root.der.clone()]
    }

    /// Both CRLs. The CRL of the agents' CA revokes these serials.
    pub fn crls(&self, number: u64, serials: &[u64]) -> Vec<CertificateRevocationListDer<'static>> {
        vec![self.ca.crl(number, serials), self.root.crl(1, &[])]
    }

    pub fn store(&self) -> TrustStore {
        store(&self.bundle(), &self.crls(1, &[])).unwrap()
    }
}

pub fn pem(label: &str, der: &[u8]) -> String {
    let lines = der.chunks(48).map(|line| STANDARD.encode(line) + "\n");
    let text: String = lines.collect();
    format!("-----BEGIN {label}-----\n{text}-----END {label}-----\n")
}

pub fn material(
    bundle: &[CertificateDer<'_>],
    crls: &[CertificateRevocationListDer<'_>],
) -> TrustMaterial {
    let cas: String = bundle.iter().map(|der| pem("CERTIFICATE", der)).collect();
    let lists: String = crls.iter().map(|der| pem("X509 CRL", der)).collect();
    TrustMaterial {
        bundle: vec![Named::new("ca.pem", cas.into_bytes())],
        crls: match crls {
            [] => Vec::new(),
            _ => vec![Named::new("crl.pem", lists.into_bytes())],
        },
        ..TrustMaterial::default()
    }
}

pub fn store(
    bundle: &[CertificateDer<'_>],
    crls: &[CertificateRevocationListDer<'_>],
) -> Result<TrustStore, Vec<PkiProblem>> {
    store_with(bundle, crls, &TrustSettings::default(), None)
}

pub fn store_with(
    bundle: &[CertificateDer<'_>],
    crls: &[CertificateRevocationListDer<'_>],
    settings: &TrustSettings,
    previous: Option<&TrustStore>,
) -> Result<TrustStore, Vec<PkiProblem>> {
    TrustStore::build(
        &material(bundle, crls),
        settings,
        &identity::IdentitySettings::default(),
        previous,
    )
}

pub fn unchecked(entries: &[&str]) -> TrustSettings {
    TrustSettings {
        unchecked: entries.iter().map(|entry| (*entry).to_owned()).collect(),
        ..TrustSettings::default()
    }
}

pub fn rejecting() -> TrustSettings {
    TrustSettings {
        crl_expired: CrlExpired::Reject,
        ..TrustSettings::default()
    }
}

/// `None` for a verified client, otherwise the reason of the refusal.
pub fn reason(verification: &ChainVerification) -> Option<Reason> {
    match &verification.identity {
        ClientIdentity::Verified(_) => None,
        ClientIdentity::Anonymous => panic!("anonymous"),
        ClientIdentity::Refused(refusal) => Some(refusal.reason),
    }
}

pub fn refusal(verification: &ChainVerification) -> &Refusal {
    match &verification.identity {
        ClientIdentity::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// The verdict on a leaf that is sent alone, as Puppet agents send it.
pub fn verdict(store: &TrustStore, leaf: &Leaf) -> Option<Reason> {
    reason(&store.verify(std::slice::from_ref(&leaf.der), now()))
}

/// The first advice if a date is at fault, because the clock may be wrong instead of the certificate.
pub const CLOCKS: &str = "First, check the clocks of the agent and of the proxy. ";
