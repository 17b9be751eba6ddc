//! Certificate requests that are written byte by byte, and their check with the default policy.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
};
use pki::{CsrPolicy, CsrRule};

pub use super::crls::{element, extension};

pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
pub const UTF8: u8 = 0x0c;
pub const PRINTABLE: u8 = 0x13;
pub const T61: u8 = 0x14;
pub const IA5: u8 = 0x16;
pub const BMP: u8 = 0x1e;
pub const CN: &[u8] = &[0x55, 0x04, 0x03];
pub const O: &[u8] = &[0x55, 0x04, 0x0a];
pub const PKCS9: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
pub const MICROSOFT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x01, 0x0e];
pub const CHALLENGE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x07];
pub const SAN: &[u8] = &[0x55, 0x1d, 0x11];
pub const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
pub const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
pub const EKU: &[u8] = &[0x55, 0x1d, 0x25];
pub const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
pub const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];

pub fn seq(parts: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

pub fn oid(content: &[u8]) -> Vec<u8> {
    element(0x06, content)
}

pub fn puppet(rest: &[u8]) -> Vec<u8> {
    [
        &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x8c, 0x4c, 0x01],
        rest,
    ]
    .concat()
}

/// An OID of this number of bytes. Each of its arcs has one byte.
pub fn long_oid(bytes: usize) -> Vec<u8> {
    vec![0x2a; bytes]
}

pub fn attribute_of_name(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    seq(&[oid(kind), element(tag, value)])
}

pub fn cn(tag: u8, value: &[u8]) -> Vec<u8> {
    element(SET, &attribute_of_name(CN, tag, value))
}

pub fn puppet_extension(rest: &[u8]) -> Vec<u8> {
    extension(&puppet(rest), false, &element(UTF8, b"true"))
}

pub fn attribute(kind: &[u8], values: &[Vec<u8>]) -> Vec<u8> {
    seq(&[oid(kind), element(SET, &values.concat())])
}

pub fn asking(extensions: &[Vec<u8>]) -> Vec<u8> {
    attribute(PKCS9, &[seq(extensions)])
}

pub fn dns(names: &[&str]) -> Vec<u8> {
    let names: Vec<_> = names
        .iter()
        .map(|name| element(0x82, name.as_bytes()))
        .collect();
    extension(SAN, false, &seq(&names))
}

/// A key that signs requests.
pub enum Signer {
    Ecdsa(EcdsaKeyPair, &'static [u8], &'static [u8]),
    Ed25519(Box<Ed25519KeyPair>),
}

impl Signer {
    pub fn p256() -> Self {
        Self::ecdsa(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
        )
    }

    pub fn p384() -> Self {
        Self::ecdsa(
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &[0x2b, 0x81, 0x04, 0x00, 0x22],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
        )
    }

    pub fn p521() -> Self {
        Self::ecdsa(
            &ECDSA_P521_SHA512_ASN1_SIGNING,
            &[0x2b, 0x81, 0x04, 0x00, 0x23],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
        )
    }

    fn ecdsa(
        algorithm: &'static EcdsaSigningAlgorithm,
        curve: &'static [u8],
        signature: &'static [u8],
    ) -> Self {
        let key = EcdsaKeyPair::generate(algorithm).expect("a key");
        Self::Ecdsa(key, curve, signature)
    }

    pub fn ed25519() -> Self {
        Self::Ed25519(Box::new(Ed25519KeyPair::generate().expect("a key")))
    }

    pub fn spki(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Ecdsa(key, curve, _) => (
                seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]), oid(curve)]),
                key.public_key().as_ref(),
            ),
            Self::Ed25519(key) => (seq(&[oid(&[0x2b, 0x65, 0x70])]), key.public_key().as_ref()),
        };
        seq(&[algorithm, element(0x03, &[&[0], key].concat())])
    }

    pub fn sign(&self, info: Vec<u8>) -> Vec<u8> {
        let (algorithm, signature) = match self {
            Self::Ecdsa(key, _, algorithm) => {
                let signature = key.sign(&SystemRandom::new(), &info).expect("it signs");
                (seq(&[oid(algorithm)]), signature.as_ref().to_vec())
            }
            Self::Ed25519(key) => (
                seq(&[oid(&[0x2b, 0x65, 0x70])]),
                key.sign(&info).as_ref().to_vec(),
            ),
        };
        seq(&[
            info,
            algorithm,
            element(0x03, &[vec![0], signature].concat()),
        ])
    }

    /// A request with these RDNs and attributes.
    pub fn request(&self, rdns: &[Vec<u8>], attributes: &[Vec<u8>]) -> Vec<u8> {
        self.sign(self.info(&[0], rdns, attributes))
    }

    pub fn info(&self, version: &[u8], rdns: &[Vec<u8>], attributes: &[Vec<u8>]) -> Vec<u8> {
        seq(&[
            element(0x02, version),
            seq(rdns),
            self.spki(),
            element(0xa0, &attributes.concat()),
        ])
    }
}

pub fn web01() -> Vec<Vec<u8>> {
    vec![cn(UTF8, b"web01")]
}

pub fn pem(der: &[u8]) -> Vec<u8> {
    super::pem("CERTIFICATE REQUEST", der).into_bytes()
}

pub const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";
pub const END: &[u8] = b"-----END CERTIFICATE REQUEST-----";

#[track_caller]
pub fn check(what: &str, body: &[u8], expected: Option<CsrRule>) {
    check_by(&CsrPolicy::default(), what, body, expected);
}

#[track_caller]
pub fn check_by(policy: &CsrPolicy, what: &str, body: &[u8], expected: Option<CsrRule>) {
    let checked = policy.check("web01", body);
    let text = checked
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    assert_eq!(
        checked.err().map(|refusal| refusal.rule),
        expected,
        "{what}: {text}"
    );
    assert!(
        text.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
        "{what}: an agent can print it: {text:?}"
    );
}

#[expect(clippy::disallowed_methods, reason = "tests read fixtures")]
pub fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ssl-fixtures/request-");
    std::fs::read(format!("{folder}{name}.pem")).expect("the fixture is there")
}
