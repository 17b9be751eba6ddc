//! CRLs that are written byte by byte: kinds that rcgen cannot create, and very large ones.

use rcgen::{KeyPair, SignatureAlgorithm, SigningKey};
use rustls_pki_types::CertificateRevocationListDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::TestCa;

/// A CRL that is not signed yet: version 2, number 1, valid until 2049, without entries.
#[derive(Clone, Default)]
pub struct List {
    version: Vec<u8>,
    entries: Vec<u8>,
    extensions: Vec<u8>,
}

impl List {
    /// A CRL with a number but without an authority key identifier.
    pub fn new(number: u8) -> Self {
        Self::without_extensions().with(&[0x55, 0x1d, 20], false, &[2, 1, number])
    }

    /// A CRL of version 2 without extensions.
    pub fn without_extensions() -> Self {
        Self {
            version: vec![2, 1, 1],
            ..Self::default()
        }
    }

    /// A CRL of version 1, which has no extensions.
    pub fn version_1() -> Self {
        Self::default()
    }

    /// Adds an extension.
    pub fn with(mut self, id: &[u8], critical: bool, value: &[u8]) -> Self {
        self.extensions.extend(extension(id, critical, value));
        self
    }

    /// Adds a revoked serial.
    pub fn revoking(self, serial: u8) -> Self {
        self.entry(&[serial], &[])
    }

    /// Adds a revoked serial with an entry extension.
    pub fn revoking_with(self, serial: u8, id: &[u8], critical: bool, value: &[u8]) -> Self {
        self.entry(&[serial], &element(0x30, &extension(id, critical, value)))
    }

    /// Adds this number of serials of 20 bytes, as current CAs create them. No test certificate has such a serial.
    pub fn revoking_strangers(mut self, count: u32) -> Self {
        for stranger in 0..count {
            let mut serial = [0x5a; 20];
            // The serials are spread, so that they are not sorted.
            let spread = stranger.wrapping_mul(2_654_435_761);
            serial[8..12].copy_from_slice(&spread.to_be_bytes());
            self = self.entry(&serial, &[]);
        }
        self
    }

    fn entry(mut self, serial: &[u8], extensions: &[u8]) -> Self {
        let serial = element(0x02, serial);
        let content = [&serial, &time("250101000000Z"), extensions].concat();
        self.entries.extend(element(0x30, &content));
        self
    }

    /// The CRL, signed by a CA.
    pub fn signed_by(&self, ca: &TestCa) -> CertificateRevocationListDer<'static> {
        let (_, certificate) = X509Certificate::from_der(&ca.der).unwrap();
        self.signed(
            certificate.tbs_certificate.subject.as_raw(),
            ca.issuer.key(),
        )
    }

    /// The CRL, signed with a key, with any issuer name.
    pub fn signed(&self, issuer: &[u8], key: &KeyPair) -> CertificateRevocationListDer<'static> {
        let algorithm = algorithm(key.algorithm());
        let entries = match self.entries.as_slice() {
            [] => Vec::new(),
            entries => element(0x30, entries),
        };
        let extensions = match self.extensions.as_slice() {
            [] => Vec::new(),
            extensions => element(0xa0, &element(0x30, extensions)),
        };
        let content = [
            self.version.as_slice(),
            algorithm,
            issuer,
            &time("250101000000Z"),
            &time("490101000000Z"),
            &entries,
            &extensions,
        ]
        .concat();
        let message = element(0x30, &content);
        let signature = [&[0][..], &key.sign(&message).unwrap()].concat();
        let whole = [message.as_slice(), algorithm, &element(0x03, &signature)].concat();
        element(0x30, &whole).into()
    }
}

/// A DER element.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut whole = vec![tag];
    match content.len() {
        short @ ..0x80 => whole.push(short as u8),
        _ => {
            whole.push(0x80 | significant.len() as u8);
            whole.extend(significant);
        }
    }
    whole.extend(content);
    whole
}

pub fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    let content = [&element(0x06, id), critical, &element(0x04, value)].concat();
    element(0x30, &content)
}

fn time(utc: &str) -> Vec<u8> {
    element(0x17, utc.as_bytes())
}

fn algorithm(of: &SignatureAlgorithm) -> &'static [u8] {
    if of == &rcgen::PKCS_RSA_SHA256 {
        return &[
            0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, 5, 0,
        ];
    }
    assert!(of == &rcgen::PKCS_ECDSA_P256_SHA256, "another algorithm");
    &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]
}
