//! Checks the policy for certificate requests. A request that passes is compared with a simple, tolerant DER reader,
//! and every verdict with the fields from which the request was built.
//!
//! Input: one byte of flags, the certname in the URL, the CN (with the flag `OTHER_NAME`), then the requested
//! extensions. Each extension is one byte for its kind and a length-prefixed value. With the flag `ATTRIBUTES`, the rest
//! of the input is used unchanged as the attributes; with `WHOLE`, as the complete request body. Except with `WHOLE`,
//! the check signs the request.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pki::{CsrPolicy, CsrSettings};
use rcgen::{KeyPair, PublicKeyData, SigningKey};

use crate::bytes::Bytes;
use crate::der;

pub(crate) fn check(input: &[u8]) {
    let mut bytes = Bytes(input);
    let flags = bytes.byte();
    let Ok(certname) = std::str::from_utf8(bytes.run()) else {
        return;
    };
    let sent = if flags & WHOLE != 0 {
        TestRequest {
            body: bytes.0.to_vec(),
            is_good: None,
        }
    } else {
        TestRequest::of(flags, certname, bytes)
    };
    let verdict = policy(false).check(certname, &sent.body);
    match &verdict {
        Ok(()) => check_passed(certname, &sent.body),
        Err(refusal) => {
            let text = refusal.to_string();
            assert!(
                text.bytes().all(|byte| matches!(byte, b' '..=b'~')),
                "{text:?}"
            );
        }
    }
    if let Some(is_good) = sent.is_good {
        assert_eq!(verdict.is_ok(), is_good, "{verdict:?}");
    }
    assert_eq!(
        policy(true).check(certname, &sent.body),
        verdict,
        "a policy that observes gives the same verdict"
    );
}

fn policy(observe: bool) -> CsrPolicy {
    CsrPolicy::new(CsrSettings {
        observe,
        ..CsrSettings::default()
    })
}

/// Asserts that a tolerant reader finds nothing forbidden in a request that the policy accepts.
fn check_passed(certname: &str, body: &[u8]) {
    let blocks = body
        .windows(10)
        .filter(|window| window.starts_with(b"-----BEGIN"))
        .count();
    assert_eq!(blocks, 1, "another reader may take another block");
    let request = base64(body);
    let whole = der::split(&request).expect("DER").1;
    let info = der::elements(der::split(whole).expect("DER").1);
    assert_eq!(common_names(info[1].1), [certname.as_bytes()]);
    let attributes: Vec<_> = info
        .iter()
        .skip(3)
        .flat_map(|(_, list)| der::elements(list))
        .collect();
    let mut extension_requests = 0;
    for (_, attribute) in attributes {
        let parts = der::elements(attribute);
        let [(0x06, oid), values, ..] = parts.as_slice() else {
            continue;
        };
        if ![EXTENSION_REQUEST, MICROSOFT].contains(oid) {
            continue;
        }
        extension_requests += 1;
        for (_, list) in der::elements(values.1) {
            for (_, extension) in der::elements(list) {
                check_extension(certname, extension);
            }
        }
    }
    assert!(
        extension_requests <= 1,
        "one server would read the first, another the last"
    );
}

fn check_extension(certname: &str, extension: &[u8]) {
    let parts = der::elements(extension);
    let oid = parts[0].1;
    let value = parts.last().expect("a value").1;
    assert!(!oid.starts_with(AUTHORIZATION), "{oid:x?} grants rights");
    match oid {
        [0x55, 0x1d, 17] => {
            let names = der::elements(der::split(value).expect("DER").1);
            let own = |(tag, name): &(u8, &[u8])| *tag == 0x82 && *name == certname.as_bytes();
            assert!(names.iter().all(own), "{names:x?}");
        }
        [0x55, 0x1d, 19] => {
            let parts = der::elements(der::split(value).expect("DER").1);
            assert!(parts.iter().all(|(_, value)| *value == [0]), "{parts:x?}");
        }
        [0x55, 0x1d, 15] => {
            let bits = der::split(value).expect("DER").1;
            assert!(bits.get(1).is_none_or(|first| first & 6 == 0), "{bits:x?}");
        }
        [0x55, 0x1d, 18 | 30 | 31 | 35 | 36 | 54] => panic!("a CA's to say: {oid:x?}"),
        _ => {}
    }
}

/// Every CN in the name. BMPString values are reduced to the low byte of each character.
fn common_names(name: &[u8]) -> Vec<Vec<u8>> {
    let rdns = der::elements(name).into_iter();
    let attributes = rdns
        .flat_map(|(_, rdn)| der::elements(rdn))
        .map(|(_, attribute)| der::elements(attribute));
    attributes
        .filter(|parts| parts[0].1 == [0x55, 0x04, 0x03])
        .map(|parts| match parts[1] {
            (0x1e, wide) => wide.iter().skip(1).step_by(2).copied().collect(),
            (_, text) => text.to_vec(),
        })
        .collect()
}

/// Decodes all lines except the PEM markers and ignores characters that are not base64.
fn base64(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    let digits: Vec<u32> = text
        .lines()
        .filter(|line| !line.contains("-----"))
        .flat_map(str::chars)
        .filter_map(|c| match c {
            'A'..='Z' => Some(c as u32 - 65),
            'a'..='z' => Some(c as u32 - 71),
            '0'..='9' => Some(c as u32 + 4),
            '+' => Some(62),
            '/' => Some(63),
            _ => None,
        })
        .collect();
    digits
        .chunks(4)
        .flat_map(|group| {
            let bits =
                group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
            let bytes = bits.to_be_bytes();
            bytes[1..group.len().max(1)].to_vec()
        })
        .collect()
}

/// A request body, and whether the policy must accept it, if that is known.
struct TestRequest {
    body: Vec<u8>,
    is_good: Option<bool>,
}

impl TestRequest {
    fn of(flags: u8, certname: &str, mut bytes: Bytes<'_>) -> Self {
        let cn = if flags & OTHER_NAME != 0 {
            bytes.run()
        } else {
            certname.as_bytes()
        };
        let mut is_good = cn == certname.as_bytes();
        let (attributes, known) = if flags & ATTRIBUTES != 0 {
            (bytes.0.to_vec(), false)
        } else {
            let (extensions, are_good) = extensions(certname, bytes);
            is_good &= are_good;
            let kind = if flags & MICROSOFT_OID != 0 {
                MICROSOFT
            } else {
                EXTENSION_REQUEST
            };
            let values = der::tlv(0x31, &der::tlv(0x30, &extensions));
            let extension_requests = der::all(0x30, &[&der::tlv(0x06, kind), &values]);
            if flags & TWICE != 0 {
                is_good = false;
                (extension_requests.repeat(2), true)
            } else {
                (extension_requests, true)
            }
        };
        let mut request = request(cn, &attributes);
        if flags & FORGED != 0 {
            is_good = false;
            if let Some(last) = request.last_mut() {
                *last ^= 1;
            }
        }
        Self {
            body: der::pem("CERTIFICATE REQUEST", &request),
            is_good: known.then_some(is_good),
        }
    }
}

/// The encoded extensions, and whether the policy allows every agent to request all of them.
fn extensions(certname: &str, mut bytes: Bytes<'_>) -> (Vec<u8>, bool) {
    let (mut list, mut are_good) = (Vec::new(), true);
    let mut seen = BTreeSet::new();
    while !bytes.is_empty() && seen.len() < 200 {
        let (kind, run) = (bytes.byte(), bytes.run());
        let critical = kind & 0x80 != 0;
        let text = der::tlv(0x0c, run);
        let puppet_oid = |arcs: [u8; 2]| [&AUTHORIZATION[..9], &arcs].concat();
        let ce = |leaf: u8| vec![0x55, 0x1d, leaf];
        let names = |name: &[u8]| der::tlv(0x30, &der::tlv(0x82, name));
        let (oid, value, is_good) = match kind & 0x0f {
            0 => (puppet_oid([1, 13]), text, true),
            1 => (puppet_oid([2, 7]), text, true),
            2 => (puppet_oid([3, 1]), text, false),
            3 => (puppet_oid([3, 39]), text, false),
            4 => (ce(17), names(certname.as_bytes()), true),
            5 => (ce(17), names(run), run == certname.as_bytes()),
            6 => (ce(19), vec![0x30, 3, 1, 1, 0xff], false),
            7 => (ce(19), vec![0x30, 0], true),
            8 => (ce(15), vec![0x03, 2, 2, 0x04], false),
            9 => (ce(15), vec![0x03, 2, 5, 0xa0], true),
            10 => (ce(37), der::tlv(0x30, run), true),
            11 => (ce(30), vec![0x30, 0], false),
            12 => (ce(99), run.to_vec(), !critical),
            13 => (ce(15), vec![0x03, 2, 1, 0x02], false),
            14 => (
                ce(17),
                der::tlv(0x30, &der::tlv(0x87, &[127, 0, 0, 1])),
                false,
            ),
            _ => (AUTHORIZATION.to_vec(), text, false),
        };
        are_good &= is_good & seen.insert(oid.clone());
        let critical = if critical {
            der::tlv(0x01, &[0xff])
        } else {
            Vec::new()
        };
        list.extend(der::all(
            0x30,
            &[&der::tlv(0x06, &oid), &critical, &der::tlv(0x04, &value)],
        ));
    }
    (list, are_good)
}

fn request(cn: &[u8], attributes: &[u8]) -> Vec<u8> {
    let name = der::all(0x30, &[&der::tlv(0x06, &[0x55, 4, 3]), &der::tlv(0x0c, cn)]);
    let info = der::all(
        0x30,
        &[
            &der::tlv(0x02, &[0]),
            &der::tlv(0x30, &der::tlv(0x31, &name)),
            &KEY.subject_public_key_info(),
            &der::tlv(0xa0, attributes),
        ],
    );
    let signature = KEY.sign(&info).expect("a key that signs");
    let algorithm = der::tlv(
        0x30,
        &der::tlv(0x06, &der::oid(&[1, 2, 840, 10_045, 4, 3, 2])),
    );
    let bits = [&[0][..], &signature].concat();
    der::all(0x30, &[&info, &algorithm, &der::tlv(0x03, &bits)])
}

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().expect("a key"));

const WHOLE: u8 = 1;
const ATTRIBUTES: u8 = 2;
const OTHER_NAME: u8 = 4;
const MICROSOFT_OID: u8 = 8;
const TWICE: u8 = 16;
const FORGED: u8 = 32;

/// 1.3.6.1.4.1.34380.1.3
const AUTHORIZATION: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x8c, 0x4c, 1, 3];
/// 1.2.840.113549.1.9.14
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// 1.3.6.1.4.1.311.2.1.14
const MICROSOFT: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 1, 14];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\x00\x05web01",
    b"\x02\x05web01",
    b"\x04\x05web01\x06victim",
    b"\x00\x03web",
    b"\x03\x04true",
    b"\x05\x06victim",
    b"\x05\x05web01",
    b"\x04\x00",
    b"\x06\x00",
    b"\x8c\x00",
    b"\x06\x0b\x2b\x06\x01\x04\x01\x82\x8c\x4c\x01\x03\x27",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e",
    b"\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x01\x0e",
    b"\x31\x00",
    b"\x30\x00",
    b"\x04\x04\x0c\x02ok",
    b"-----BEGIN CERTIFICATE REQUEST-----\n",
    b"\n-----END CERTIFICATE REQUEST-----\n",
    b"=",
    b"\r\n",
];
