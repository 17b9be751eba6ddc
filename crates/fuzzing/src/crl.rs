//! Compares the CRL index with webpki's verdict on the same CRL and with the entries from which the CRL was built.
//!
//! Input: one byte of flags, a CRL number, the serial number of a certificate, then the CRL entries. With the flag
//! `RAW`, the rest of the input is used unchanged as everything that follows the issuer in the CRL. The check signs the
//! CRL and the certificate itself, so that mutated input has a valid signature and reaches the index.

use std::sync::LazyLock;
use std::time::Duration;

use identity::{ClientIdentity, Reason};
use pki::{CrlExpired, Named, TrustMaterial, TrustSettings, TrustStore};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose, SigningKey,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, Error, ExpirationPolicy,
    KeyUsage, OwnedCertRevocationList, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy, anchor_from_trusted_cert,
};

use crate::bytes::Bytes;
use crate::der;

pub(crate) fn check(input: &[u8]) {
    let list = TestCrl::of(input);
    let leaf = leaf(list.probe);
    let crl = list.signed();
    let webpki_result = webpki_verdict(&crl, &leaf);
    let our_result = our_verdict(&crl, &leaf, list.policy());
    assert!(
        !(webpki_result == Verdict::Revoked && our_result == Verdict::Good),
        "webpki knows it as revoked: {list:?}"
    );
    let Content::Entries(entries) = &list.content else {
        return;
    };
    let listed = entries
        .iter()
        .any(|entry| der::shortest(entry.serial) == der::shortest(list.probe));
    let expected = match () {
        () if !list.is_usable() => Verdict::Unusable,
        () if listed => Verdict::Revoked,
        () if list.flags.has(Flags::EXPIRED)
            && !list.flags.has(Flags::ENDLESS)
            && list.flags.has(Flags::REJECT) =>
        {
            Verdict::Expired
        }
        () => Verdict::Good,
    };
    assert_eq!(our_result, expected, "{list:?}");
    // webpki compares the encoded bytes of serial numbers, including leading zeros.
    let spelled = entries.iter().any(|entry| entry.serial == list.probe);
    if webpki_result == Verdict::Good {
        assert!(!spelled, "webpki does not find it: {list:?}");
    }
    if webpki_result == Verdict::Revoked {
        assert!(spelled, "webpki finds what is not there: {list:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Revoked,
    Expired,
    /// The CRL is refused, or it does not cover the certificate.
    Unusable,
}

fn our_verdict(crl: &[u8], leaf: &CertificateDer<'_>, crl_expired: CrlExpired) -> Verdict {
    let material = TrustMaterial {
        bundle: vec![Named::new("ca", AUTHORITY.pem.clone())],
        crls: vec![Named::new("crl", der::pem("X509 CRL", crl))],
        ..TrustMaterial::default()
    };
    let settings = TrustSettings {
        crl_expired,
        ..TrustSettings::default()
    };
    let Ok(store) = TrustStore::build(
        &material,
        &settings,
        &identity::IdentitySettings::default(),
        None,
    ) else {
        return Verdict::Unusable;
    };
    match store.verify(std::slice::from_ref(leaf), NOW).identity {
        ClientIdentity::Verified(_) => Verdict::Good,
        ClientIdentity::Refused(refusal) if refusal.reason == Reason::Revoked => Verdict::Revoked,
        ClientIdentity::Refused(refusal) if refusal.reason == Reason::CrlExpired => {
            Verdict::Expired
        }
        other => panic!("a good certificate is {other:?}"),
    }
}

fn webpki_verdict(crl: &[u8], leaf: &CertificateDer<'_>) -> Verdict {
    let owned = OwnedCertRevocationList::from_der(crl);
    let borrowed = BorrowedCertRevocationList::from_der(crl);
    let lists: [Option<CertRevocationList<'_>>; 2] =
        [owned.ok().map(Into::into), borrowed.ok().map(Into::into)];
    let verdicts =
        lists.map(|list| list.map_or(Verdict::Unusable, |list| checked_by_webpki(&list, leaf)));
    // The owned (indexed) CRL rejects a malformed entry when it is parsed. The borrowed CRL rejects it only when the
    // search reaches that entry.
    match verdicts {
        [Verdict::Unusable, other] | [other, _] => other,
    }
}

fn checked_by_webpki(list: &CertRevocationList<'_>, leaf: &CertificateDer<'_>) -> Verdict {
    let lists = [list];
    let options = RevocationOptionsBuilder::new(&lists)
        .expect("one list")
        .with_depth(RevocationCheckDepth::EndEntity)
        .with_status_policy(UnknownStatusPolicy::Deny)
        .with_expiration_policy(ExpirationPolicy::Ignore)
        .build();
    let anchor = CertificateDer::from(&*AUTHORITY.der);
    let anchors = [anchor_from_trusted_cert(&anchor).expect("a CA")];
    let leaf = EndEntityCert::try_from(leaf).expect("a certificate");
    let outcome = leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        &[],
        NOW,
        KeyUsage::client_auth(),
        Some(options),
        None,
    );
    match outcome {
        Ok(_) => Verdict::Good,
        Err(Error::CertRevoked) => Verdict::Revoked,
        Err(_) => Verdict::Unusable,
    }
}

#[derive(Debug)]
struct TestCrl<'a> {
    flags: Flags,
    number: &'a [u8],
    /// Serial number of the certificate to check.
    probe: &'a [u8],
    content: Content<'a>,
}

#[derive(Debug)]
enum Content<'a> {
    Entries(Vec<Entry<'a>>),
    /// Everything that follows the issuer in the CRL.
    Raw(&'a [u8]),
}

#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    flags: Flags,
    serial: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Flags(u8);

impl Flags {
    const RAW: u8 = 1;
    const VERSION_1: u8 = 2;
    const ENDLESS: u8 = 4;
    const EXPIRED: u8 = 8;
    const REJECT: u8 = 16;
    const NUMBERLESS: u8 = 32;
    const DELTA: u8 = 64;
    const PARTITIONED: u8 = 128;

    const REASON: u8 = 1;
    const CRITICAL: u8 = 2;
    const OTHER_ISSUER: u8 = 4;
    const UNKNOWN: u8 = 8;
    const GENERALIZED: u8 = 16;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

impl<'a> TestCrl<'a> {
    fn of(input: &'a [u8]) -> Self {
        let mut bytes = Bytes(input);
        let flags = Flags(bytes.byte());
        let number = bytes.run();
        let probe = match bytes.run() {
            [] => &[1],
            probe => probe,
        };
        let content = if flags.has(Flags::RAW) {
            Content::Raw(bytes.0)
        } else {
            let mut entries = Vec::new();
            while !bytes.is_empty() {
                let (flags, serial) = (Flags(bytes.byte()), bytes.run());
                entries.push(Entry { flags, serial });
            }
            Content::Entries(entries)
        };
        Self {
            flags,
            number,
            probe,
            content,
        }
    }

    fn policy(&self) -> CrlExpired {
        if self.flags.has(Flags::REJECT) {
            CrlExpired::Reject
        } else {
            CrlExpired::Warn
        }
    }

    /// Whether the proxy must accept the CRL: it is a complete CRL, its CRL number is valid if it has one, and it covers
    /// only certificates of this issuer.
    fn is_usable(&self) -> bool {
        let Content::Entries(entries) = &self.content else {
            return false;
        };
        let unusable_flags = Flags::DELTA | Flags::PARTITIONED;
        let number = der::shortest(self.number);
        let positive = number.first().is_some_and(|first| *first < 0x80);
        let has_valid_number = positive && number.len() <= 21;
        let entry = |entry: &Entry<'_>| {
            let reserved = entry.flags.has(Flags::OTHER_ISSUER)
                || entry.flags.has(Flags::UNKNOWN) && entry.flags.has(Flags::CRITICAL);
            !entry.serial.is_empty() && !reserved
        };
        !self.flags.has(unusable_flags)
            && (self.flags.has(Flags::NUMBERLESS) || has_valid_number)
            && entries.iter().all(entry)
    }

    fn signed(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        if !self.flags.has(Flags::VERSION_1) {
            parts.push(der::tlv(0x02, &[1]));
        }
        parts.extend([ALGORITHM.clone(), AUTHORITY.name.clone()]);
        match &self.content {
            Content::Raw(rest) => parts.push(rest.to_vec()),
            Content::Entries(entries) => parts.extend(self.rest(entries)),
        }
        sign(&der::tlv(0x30, &parts.concat()))
    }

    fn rest(&self, entries: &[Entry<'_>]) -> Vec<Vec<u8>> {
        let mut parts = vec![der::tlv(0x17, b"250101000000Z")];
        if !self.flags.has(Flags::ENDLESS) {
            let until = if self.flags.has(Flags::EXPIRED) {
                b"250201000000Z"
            } else {
                b"490201000000Z"
            };
            parts.push(der::tlv(0x17, until));
        }
        if !entries.is_empty() {
            let entries: Vec<u8> = entries.iter().flat_map(Entry::encoded).collect();
            parts.push(der::tlv(0x30, &entries));
        }
        let mut extensions = Vec::new();
        if !self.flags.has(Flags::NUMBERLESS) {
            extensions.extend(extension(20, false, &der::tlv(0x02, self.number)));
        }
        if self.flags.has(Flags::DELTA) {
            extensions.extend(extension(27, true, &der::tlv(0x02, &[1])));
        }
        if self.flags.has(Flags::PARTITIONED) {
            extensions.extend(extension(
                28,
                true,
                &der::tlv(0x30, &der::tlv(0x81, &[0xff])),
            ));
        }
        if !extensions.is_empty() {
            parts.push(der::tlv(0xa0, &der::tlv(0x30, &extensions)));
        }
        parts
    }
}

impl Entry<'_> {
    fn encoded(&self) -> Vec<u8> {
        let date = if self.flags.has(Flags::GENERALIZED) {
            der::tlv(0x18, b"20500101000000Z")
        } else {
            der::tlv(0x17, b"250101000000Z")
        };
        let critical = self.flags.has(Flags::CRITICAL);
        let mut extensions = Vec::new();
        if self.flags.has(Flags::REASON) {
            extensions.extend(extension(21, critical, &[0x0a, 1, 1]));
        }
        if self.flags.has(Flags::OTHER_ISSUER) {
            extensions.extend(extension(
                29,
                true,
                &der::tlv(0x30, &der::all(0xa4, &[&AUTHORITY.name])),
            ));
        }
        if self.flags.has(Flags::UNKNOWN) {
            extensions.extend(extension(99, critical, &[5, 0]));
        }
        let extensions = match extensions.as_slice() {
            [] => Vec::new(),
            some => der::tlv(0x30, some),
        };
        der::all(0x30, &[&der::tlv(0x02, self.serial), &date, &extensions])
    }
}

/// An extension whose OID is below `id-ce` (2.5.29), the arc of RFC 5280.
fn extension(leaf: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical {
        der::tlv(0x01, &[0xff])
    } else {
        Vec::new()
    };
    der::all(
        0x30,
        &[
            &der::tlv(0x06, &[0x55, 0x1d, leaf]),
            &critical,
            &der::tlv(0x04, value),
        ],
    )
}

fn leaf(serial: &[u8]) -> CertificateDer<'static> {
    let name = der::all(
        0x30,
        &[&der::tlv(0x06, &[0x55, 4, 3]), &der::tlv(0x0c, b"web01")],
    );
    let signed = der::all(
        0x30,
        &[
            &der::tlv(0xa0, &der::tlv(0x02, &[2])),
            &der::tlv(0x02, serial),
            &ALGORITHM,
            &AUTHORITY.name,
            &der::all(
                0x30,
                &[
                    &der::tlv(0x17, b"250101000000Z"),
                    &der::tlv(0x17, b"490101000000Z"),
                ],
            ),
            &der::tlv(0x30, &der::tlv(0x31, &name)),
            &AUTHORITY.spki,
        ],
    );
    sign(&signed).into()
}

fn sign(message: &[u8]) -> Vec<u8> {
    let signature = AUTHORITY.key.sign(message).expect("a key that signs");
    let bits = [&[0][..], &signature].concat();
    der::all(0x30, &[message, &ALGORITHM, &der::tlv(0x03, &bits)])
}

/// A CA with a single self-signed certificate.
struct Authority {
    key: KeyPair,
    pem: Vec<u8>,
    der: Vec<u8>,
    name: Vec<u8>,
    spki: Vec<u8>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "Puppet CA: fuzz");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params
        .self_signed(&key)
        .expect("own parameters can be signed");
    let der = certificate.der().to_vec();
    let whole = der::elements(&der)[0].1;
    let fields = der::elements(der::elements(whole)[0].1);
    // version, serial, algorithm, issuer, validity, subject, key (RFC 5280 §4.1)
    let (name, spki) = (der::tlv(0x30, fields[5].1), der::tlv(0x30, fields[6].1));
    Authority {
        pem: der::pem("CERTIFICATE", &der),
        key,
        der,
        name,
        spki,
    }
});

/// The signature algorithm of the CA's key: ECDSA with SHA-256.
static ALGORITHM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    der::tlv(
        0x30,
        &der::tlv(0x06, &der::oid(&[1, 2, 840, 10_045, 4, 3, 2])),
    )
});

/// A time at which everything built here is valid, except CRLs that are meant to be expired.
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));

pub(crate) const WORDS: &[&[u8]] = &[
    b"\x00\x01\x01\x01\x05\x00\x01\x05",
    b"\x00\x01\x05",
    b"\x00\x02\x00\x05",
    b"\x01\x01\x05",
    b"\x00\x14abcdefghijklmnopqrst",
    b"\x00\x02\x00\x80",
    b"\x00\x01\x80",
    b"\x00\x02\xff\x80",
    b"\x17\x0d250101000000Z",
    b"\x18\x0f20500101000000Z",
    b"\x30\x12\x02\x01\x05\x17\x0d250101000000Z",
    b"\xa0\x0e\x30\x0c\x30\x0a\x06\x03\x55\x1d\x14\x04\x03\x02\x01\x01",
    b"\x30\x0a\x06\x03\x55\x1d\x15\x04\x03\x0a\x01\x01",
    b"\x06\x03\x55\x1d\x1b",
    b"\x06\x03\x55\x1d\x1c",
    b"\x06\x03\x55\x1d\x1d",
    b"\x01\x01\xff",
];
