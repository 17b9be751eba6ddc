//! Treats arbitrary bytes as a certificate. Checks how the certificate is described, which identity is read from it,
//! and that it does not change the verdict on a valid certificate.

use std::sync::LazyLock;

use identity::{
    Agent, ChainVerified, DnFormat, IdentitySettings, PuppetExtensions, Subject, SubjectRule,
    authorization_extensions,
};
use pki::{Named, TrustMaterial, TrustSettings, TrustStore};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use testkit::{Ca, readers};
use webpki::EndEntityCert;

use crate::der;

pub(crate) fn check(input: &[u8]) {
    for text in [Subject::describe(input), Subject::name_text(input)] {
        assert!(!text.is_empty() && is_printable_ascii(&text), "{text:?}");
    }
    if let Some(cn) = Subject::only_cn(input) {
        assert!(
            contains_text(input, &cn),
            "{cn:?} stands nowhere in the name"
        );
    }
    let carried = extensions(input);
    let granted = authorization_extensions(input);
    for subject in [SubjectRule::Puppet, SubjectRule::SingleCn] {
        let settings = IdentitySettings {
            subject,
            dn_formats: [DnFormat::OpenSsl, DnFormat::CnLast].into_iter().collect(),
        };
        let read = Agent::from_leaf(input, &settings, ChainVerified::assertion());
        // In production, webpki parses and verifies a certificate before an agent is created from it.
        let is_strict = EndEntityCert::try_from(&CertificateDer::from(input)).is_ok();
        if let (Ok(agent), true) = (read, is_strict) {
            check_agent(input, &agent, &carried, &granted);
        }
    }
    check_trust(input);
}

fn check_agent(input: &[u8], agent: &Agent, carried: &[Vec<u8>], granted: &[String]) {
    assert_eq!(agent.leaf(), input);
    let certname = agent.certname().as_str();
    assert!(
        readers::is_possible(certname) && contains_text(input, certname),
        "{certname:?}"
    );
    assert!(is_printable_ascii(agent.dn()), "{:?}", agent.dn());
    assert_eq!(Some(agent.serial().to_owned()), serial(input));
    assert_eq!(agent.has_authorization_extension(), !granted.is_empty());
    let authorization = der::oid(AUTHORIZATION);
    let below = |arc: &[u8]| {
        carried
            .iter()
            .filter(|oid| oid.len() > arc.len() && oid.starts_with(arc))
            .count()
    };
    let itself = carried.iter().filter(|oid| **oid == authorization).count();
    assert_eq!(granted.len(), below(&authorization) + itself, "{granted:?}");
    let puppet_extensions: &PuppetExtensions = agent.extensions();
    assert_eq!(
        puppet_extensions.iter().count(),
        below(&der::oid(PUPPET)),
        "{puppet_extensions:?}"
    );
}

/// Asserts that only the certificate that the CA issued is accepted. Additional certificates in the chain, the CA
/// bundle or the CRL file do not change that.
fn check_trust(input: &[u8]) {
    let estate = &*ESTATE;
    let stranger = CertificateDer::from(input);
    let alone = estate
        .store
        .verify(std::slice::from_ref(&stranger), UnixTime::now())
        .identity;
    assert!(
        alone.agent().is_none() || input == &*estate.agent,
        "{alone:?}"
    );
    if let identity::ClientIdentity::Refused(refusal) = &alone {
        assert!(
            is_printable_ascii(&refusal.certificate) && is_printable_ascii(&refusal.help),
            "{refusal:?}"
        );
    }
    for chain in [
        vec![estate.agent.clone(), stranger.clone()],
        vec![estate.agent.clone(), stranger.clone(), stranger],
    ] {
        let verdict = estate.store.verify(&chain, UnixTime::now()).identity;
        assert!(verdict.agent().is_some(), "{verdict:?}");
    }
    let (mut with_ca, mut with_crl) = (estate.material.clone(), estate.material.clone());
    with_ca
        .bundle
        .push(Named::new("input", der::pem("CERTIFICATE", input)));
    with_crl
        .crls
        .push(Named::new("input", der::pem("X509 CRL", input)));
    for material in [with_ca, with_crl] {
        match built(&material) {
            Ok(store) => {
                let still = store
                    .verify(std::slice::from_ref(&estate.agent), UnixTime::now())
                    .identity;
                assert!(still.agent().is_some(), "{still:?}");
                assert!(
                    store
                        .warnings()
                        .iter()
                        .all(|warning| is_printable_ascii(warning))
                );
            }
            Err(problems) => assert!(
                problems
                    .iter()
                    .all(|problem| is_printable_ascii(&problem.to_string())),
                "{problems:?}"
            ),
        }
    }
}

fn built(material: &TrustMaterial) -> Result<TrustStore, Vec<pki::PkiProblem>> {
    TrustStore::build(
        material,
        &TrustSettings::default(),
        &IdentitySettings::default(),
        None,
    )
}

struct Estate {
    material: TrustMaterial,
    store: TrustStore,
    agent: CertificateDer<'static>,
}

static ESTATE: LazyLock<Estate> = LazyLock::new(|| {
    let ca = Ca::new();
    let material = TrustMaterial {
        bundle: vec![Named::new("ca.pem", ca.bundle_pem().into_bytes())],
        crls: vec![Named::new("crl.pem", ca.crl_pem().into_bytes())],
        ..TrustMaterial::default()
    };
    let agent = ca.agent("web01").cert_pem;
    Estate {
        store: built(&material).expect("a good CA"),
        agent: CertificateDer::from_pem_slice(agent.as_bytes()).expect("PEM"),
        material,
    }
});

/// The OIDs of a certificate's extensions.
fn extensions(certificate: &[u8]) -> Vec<Vec<u8>> {
    let fields = fields(certificate);
    let lists = fields.iter().filter(|(tag, _)| *tag == 0xa3);
    let list = lists
        .flat_map(|(_, explicit)| der::elements(explicit))
        .flat_map(|(_, list)| der::elements(list));
    list.filter_map(|(_, extension)| {
        let (tag, oid, _) = der::split(extension)?;
        (tag == 0x06).then(|| oid.to_vec())
    })
    .collect()
}

/// The serial number in hexadecimal, as it is printed.
fn serial(certificate: &[u8]) -> Option<String> {
    let fields = fields(certificate);
    let (_, serial) = fields.iter().find(|(tag, _)| *tag == 0x02)?;
    let unsigned = serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty());
    let digits = unsigned.unwrap_or(serial).iter();
    Some(digits.map(|byte| format!("{byte:02X}")).collect())
}

/// The fields of the TBSCertificate, the signed part of a certificate.
fn fields(certificate: &[u8]) -> Vec<(u8, &[u8])> {
    let whole = der::split(certificate).map_or(&[][..], |(_, value, _)| value);
    der::split(whole).map_or(Vec::new(), |(_, signed, _)| der::elements(signed))
}

/// Whether `bytes` contain the text, encoded as UTF-8 or as UTF-16 (BMPString).
fn contains_text(bytes: &[u8], text: &str) -> bool {
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let found =
        |part: &[u8]| part.is_empty() || bytes.windows(part.len()).any(|window| window == part);
    found(text.as_bytes()) || found(&wide)
}

fn is_printable_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

const PUPPET: &[u32] = &[1, 3, 6, 1, 4, 1, 34_380, 1];
const AUTHORIZATION: &[u32] = &[1, 3, 6, 1, 4, 1, 34_380, 1, 3];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\x06\x03\x55\x04\x03\x0c\x05web01",
    b"\x30\x0c\x06\x0a\x2b\x06\x01\x04\x01\x82\x8c\x4c\x01\x03",
    b"\x06\x0a\x2b\x06\x01\x04\x01\x82\x8c\x4c\x01\x01\x0d",
    b"\x55\x1d\x0f",
    b"\x55\x1d\x11",
    b"\x55\x1d\x13",
    b"\x55\x1d\x14",
    b"\x01\x01\xff",
    b"\x17\x0d260101000000Z",
    b"\x18\x0f20260101000000Z",
    b"\x30\x80",
    b"\x30\x82\xff\xff",
    b"\xa0\x03\x02\x01\x02",
    b"\xa3",
    b"\x02\x01\x00",
    b"\x1e\x02\x00",
    b"\0",
];
