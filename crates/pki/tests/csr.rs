//! Checks of certificate requests: of agents, and every kind of forged, unusual and malformed request.

#![allow(clippy::disallowed_methods, reason = "tests read fixtures")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
};
use identity::CertnamePattern;
use pki::{CsrAllow, CsrKey, CsrPolicy, CsrRule, CsrSettings};

use CsrRule::{Altnames, Authorization, Extensions, Key, Name, Signature, Unreadable};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const T61: u8 = 0x14;
const IA5: u8 = 0x16;
const BMP: u8 = 0x1e;
const CN: &[u8] = &[0x55, 0x04, 0x03];
const O: &[u8] = &[0x55, 0x04, 0x0a];
const PKCS9: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const MICROSOFT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x01, 0x0e];
const CHALLENGE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x07];
const SAN: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EKU: &[u8] = &[0x55, 0x1d, 0x25];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        short @ 0..0x80 => vec![short as u8],
        long @ 0x80..0x100 => vec![0x81, long as u8],
        longer => vec![0x82, (longer >> 8) as u8, longer as u8],
    };
    [&[tag], &length[..], content].concat()
}

fn seq(parts: &[Vec<u8>]) -> Vec<u8> {
    tlv(SEQUENCE, &parts.concat())
}

fn oid(content: &[u8]) -> Vec<u8> {
    tlv(0x06, content)
}

fn puppet(rest: &[u8]) -> Vec<u8> {
    [
        &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x8c, 0x4c, 0x01],
        rest,
    ]
    .concat()
}

/// An OID of this many bytes, each of its arcs one byte.
fn long_oid(bytes: usize) -> Vec<u8> {
    vec![0x2a; bytes]
}

fn attribute_of_name(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    seq(&[oid(kind), tlv(tag, value)])
}

fn cn(tag: u8, value: &[u8]) -> Vec<u8> {
    tlv(SET, &attribute_of_name(CN, tag, value))
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical {
        tlv(0x01, &[0xff])
    } else {
        Vec::new()
    };
    seq(&[oid(id), critical, tlv(0x04, value)])
}

fn puppet_extension(rest: &[u8]) -> Vec<u8> {
    extension(&puppet(rest), false, &tlv(UTF8, b"true"))
}

fn attribute(kind: &[u8], values: &[Vec<u8>]) -> Vec<u8> {
    seq(&[oid(kind), tlv(SET, &values.concat())])
}

fn asking(extensions: &[Vec<u8>]) -> Vec<u8> {
    attribute(PKCS9, &[seq(extensions)])
}

fn dns(names: &[&str]) -> Vec<u8> {
    let names: Vec<_> = names
        .iter()
        .map(|name| tlv(0x82, name.as_bytes()))
        .collect();
    extension(SAN, false, &seq(&names))
}

/// A key that signs requests.
enum Signer {
    Ecdsa(EcdsaKeyPair, &'static [u8], &'static [u8]),
    Ed25519(Box<Ed25519KeyPair>),
}

impl Signer {
    fn p256() -> Self {
        Self::ecdsa(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
        )
    }

    fn p384() -> Self {
        Self::ecdsa(
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &[0x2b, 0x81, 0x04, 0x00, 0x22],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
        )
    }

    fn p521() -> Self {
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

    fn ed25519() -> Self {
        Self::Ed25519(Box::new(Ed25519KeyPair::generate().expect("a key")))
    }

    fn spki(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Ecdsa(key, curve, _) => (
                seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]), oid(curve)]),
                key.public_key().as_ref(),
            ),
            Self::Ed25519(key) => (seq(&[oid(&[0x2b, 0x65, 0x70])]), key.public_key().as_ref()),
        };
        seq(&[algorithm, tlv(0x03, &[&[0], key].concat())])
    }

    fn sign(&self, info: Vec<u8>) -> Vec<u8> {
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
        seq(&[info, algorithm, tlv(0x03, &[vec![0], signature].concat())])
    }

    /// A request with these RDNs and attributes.
    fn request(&self, rdns: &[Vec<u8>], attributes: &[Vec<u8>]) -> Vec<u8> {
        self.sign(self.info(&[0], rdns, attributes))
    }

    fn info(&self, version: &[u8], rdns: &[Vec<u8>], attributes: &[Vec<u8>]) -> Vec<u8> {
        seq(&[
            tlv(0x02, version),
            seq(rdns),
            self.spki(),
            tlv(0xa0, &attributes.concat()),
        ])
    }
}

fn web01() -> Vec<Vec<u8>> {
    vec![cn(UTF8, b"web01")]
}

fn pem(der: &[u8]) -> Vec<u8> {
    let base64 = base64(der);
    let lines: Vec<_> = base64
        .as_bytes()
        .chunks(64)
        .map(|line| [line, b"\n"].concat())
        .collect();
    [BEGIN, b"\n", &lines.concat(), END, b"\n"].concat()
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";
const END: &[u8] = b"-----END CERTIFICATE REQUEST-----";

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| -> String {
        let bits = (0..3).fold(0_u32, |bits, at| {
            bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0))
        });
        let digit = |at: usize| match at <= chunk.len() {
            true => char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        };
        (0..4).map(digit).collect()
    };
    bytes.chunks(3).map(group).collect()
}

#[track_caller]
fn check(what: &str, body: &[u8], expected: Option<CsrRule>) {
    check_by(&CsrPolicy::default(), what, body, expected);
}

#[track_caller]
fn check_by(policy: &CsrPolicy, what: &str, body: &[u8], expected: Option<CsrRule>) {
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

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ssl-fixtures/request-");
    std::fs::read(format!("{folder}{name}.pem")).expect("the fixture is there")
}

#[test]
fn requests_of_agents_pass_unless_they_request_more() {
    let policy = CsrPolicy::default();
    for (name, expected) in [
        ("plain", None),
        ("attributes", None),
        ("cli-auth", Some(Authorization)),
        ("altnames", Some(Altnames)),
    ] {
        let checked = policy.check(&format!("{name}.lab.test"), &fixture(name));
        assert_eq!(
            checked.err().map(|refusal| refusal.rule),
            expected,
            "{name}"
        );
        let other = policy.check("web01", &fixture(name));
        assert_eq!(
            other.err().map(|refusal| refusal.rule),
            Some(Name),
            "{name}"
        );
    }
}

#[test]
fn every_accepted_kind_of_key_passes_and_other_kinds_are_named_in_the_refusal() {
    for signer in [
        Signer::p256(),
        Signer::p384(),
        Signer::p521(),
        Signer::ed25519(),
    ] {
        check("admitted", &pem(&signer.request(&web01(), &[])), None);
    }
    let ed25519_alone = CsrPolicy::new(CsrSettings {
        keys: vec![CsrKey::Ed25519],
        ..CsrSettings::default()
    });
    let body = pem(&Signer::ed25519().request(&web01(), &[]));
    check_by(&ed25519_alone, "the one kind", &body, None);
    let body = pem(&Signer::p256().request(&web01(), &[]));
    check_by(&ed25519_alone, "another kind", &body, Some(Key));
    let long = CsrPolicy::new(CsrSettings {
        rsa_bits_min: 3072,
        ..CsrSettings::default()
    });
    let short = long.check("attributes.lab.test", &fixture("attributes"));
    assert_eq!(short.err().map(|refusal| refusal.rule), Some(Key));
    assert_eq!(long.check("plain.lab.test", &fixture("plain")), Ok(()));
}

#[test]
fn every_kind_of_certificate_request_has_the_expected_outcome() {
    let key = Signer::p256();
    let subject = |rdns: &[Vec<u8>]| pem(&key.request(rdns, &[]));
    let with = |attributes: &[Vec<u8>]| pem(&key.request(&web01(), attributes));
    let for_ext = |extensions: &[Vec<u8>]| with(&[asking(extensions)]);
    let cli_auth = || puppet_extension(&[3, 39]);
    let role = || puppet_extension(&[1, 13]);
    let rsa = |bytes: usize| {
        let modulus = [vec![0], vec![0xc1; bytes]].concat();
        let numbers = seq(&[tlv(0x02, &modulus), tlv(0x02, &[1, 0, 1])]);
        let algorithm = seq(&[
            oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]),
            vec![5, 0],
        ]);
        let spki = seq(&[algorithm, tlv(0x03, &[vec![0], numbers].concat())]);
        let info = seq(&[tlv(0x02, &[0]), seq(&web01()), spki, tlv(0xa0, &[])]);
        pem(&key.sign(info))
    };
    let dsa = {
        let spki = seq(&[
            seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01])]),
            tlv(0x03, &[0, 2, 1, 5]),
        ]);
        pem(&key.sign(seq(&[tlv(0x02, &[0]), seq(&web01()), spki, tlv(0xa0, &[])])))
    };
    let k256 = {
        let mut info = key.info(&[0], &web01(), &[]);
        let curve = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let at = info
            .windows(8)
            .position(|bytes| bytes == curve)
            .expect("the curve");
        info[at + 7] = 0x0a;
        pem(&key.sign(info))
    };
    let foreign = Signer::p256().sign(key.info(&[0], &web01(), &[]));
    let mut flipped = key.request(&web01(), &[asking(&[role()])]);
    let at = flipped
        .windows(4)
        .position(|bytes| bytes == b"true")
        .expect("the value");
    flipped[at] = b'T';
    let sha1 = {
        let ecdsa_sha1 = seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01])]);
        pem(&seq(&[
            key.info(&[0], &web01(), &[]),
            ecdsa_sha1,
            tlv(0x03, &[0, 1]),
        ]))
    };
    let no_attributes = {
        let info = seq(&[tlv(0x02, &[0]), seq(&web01()), key.spki()]);
        pem(&key.sign(info))
    };
    let trailing_info = {
        let info = seq(&[
            tlv(0x02, &[0]),
            seq(&web01()),
            key.spki(),
            tlv(0xa0, &[]),
            tlv(0x05, &[]),
        ]);
        pem(&key.sign(info))
    };
    let many: Vec<_> = (0..=256_u16)
        .map(|n| puppet_extension(&[2, 0x81 + (n >> 7) as u8, (n & 0x7f) as u8]))
        .collect();
    let long_cn = [&[0x55, 0x04, 0x80, 0x03][..], &[]].concat();
    let good = with(&[]);

    let table: Vec<(&str, Vec<u8>, Option<CsrRule>)> = vec![
        // Requests of agents and of openssl.
        ("plain", good.clone(), None),
        ("without attributes at all", no_attributes, None),
        (
            "a PrintableString",
            subject(&[cn(PRINTABLE, b"web01")]),
            None,
        ),
        ("an IA5String", subject(&[cn(IA5, b"web01")]), None),
        (
            "more than a CN",
            subject(&[
                tlv(SET, &attribute_of_name(O, UTF8, b"Lab")),
                cn(UTF8, b"web01"),
            ]),
            None,
        ),
        (
            "challengePassword",
            with(&[attribute(CHALLENGE, &[tlv(UTF8, b"secret")])]),
            None,
        ),
        (
            "trusted facts",
            for_ext(&[
                role(),
                puppet_extension(&[1, 1]),
                puppet_extension(&[1, 2]),
                puppet_extension(&[1, 4]),
                puppet_extension(&[2, 1]),
            ]),
            None,
        ),
        (
            "auto-renewal as an attribute",
            with(&[attribute(&puppet(&[3, 2]), &[tlv(UTF8, b"true")])]),
            None,
        ),
        ("its own name as altname", for_ext(&[dns(&["web01"])]), None),
        (
            "no CA",
            for_ext(&[extension(BASIC_CONSTRAINTS, true, &seq(&[]))]),
            None,
        ),
        (
            "plainly no CA",
            for_ext(&[extension(BASIC_CONSTRAINTS, true, &seq(&[tlv(1, &[0])]))]),
            None,
        ),
        (
            "usage of an agent",
            for_ext(&[extension(KEY_USAGE, true, &tlv(3, &[5, 0xa0]))]),
            None,
        ),
        (
            "a usage for nothing",
            for_ext(&[extension(KEY_USAGE, true, &tlv(3, &[0]))]),
            None,
        ),
        (
            "pp_role, critical",
            for_ext(&[extension(&puppet(&[1, 13]), true, &tlv(UTF8, b"web"))]),
            None,
        ),
        (
            "purpose of an agent",
            for_ext(&[extension(
                EKU,
                true,
                &seq(&[oid(&[0x2b, 6, 1, 5, 5, 7, 3, 2])]),
            )]),
            None,
        ),
        (
            "an unknown extension, not critical",
            for_ext(&[extension(&[0x2a, 3, 4], false, &[5, 0])]),
            None,
        ),
        (
            "Microsoft's attribute with a fact",
            with(&[attribute(MICROSOFT, &[seq(&[role()])])]),
            None,
        ),
        ("no extensions in the attribute", for_ext(&[]), None),
        (
            "with carriage returns",
            String::from_utf8_lossy(&good)
                .replace('\n', "\r\n")
                .into_bytes(),
            None,
        ),
        (
            "blanks around it",
            [b"\n ", &good[..], b"\n\n"].concat(),
            None,
        ),
        // Names.
        ("another name", subject(&[cn(UTF8, b"web02")]), Some(Name)),
        ("another case", subject(&[cn(UTF8, b"Web01")]), Some(Name)),
        (
            "two CNs",
            subject(&[cn(UTF8, b"web01"), cn(UTF8, b"web02")]),
            Some(Name),
        ),
        (
            "the same CN twice",
            subject(&[cn(UTF8, b"web01"), cn(UTF8, b"web01")]),
            Some(Name),
        ),
        (
            "two CNs in one RDN",
            subject(&[tlv(
                SET,
                &[
                    attribute_of_name(CN, UTF8, b"web01"),
                    attribute_of_name(CN, UTF8, b"web02"),
                ]
                .concat(),
            )]),
            Some(Name),
        ),
        (
            "a CN beside an O in one RDN",
            subject(&[tlv(
                SET,
                &[
                    attribute_of_name(O, UTF8, b"x"),
                    attribute_of_name(CN, UTF8, b"web01"),
                ]
                .concat(),
            )]),
            Some(Name),
        ),
        ("no subject", subject(&[]), Some(Name)),
        (
            "no CN",
            subject(&[tlv(SET, &attribute_of_name(O, UTF8, b"web01"))]),
            Some(Name),
        ),
        ("an empty CN", subject(&[cn(UTF8, b"")]), Some(Name)),
        ("a T61String", subject(&[cn(T61, b"web01")]), Some(Name)),
        (
            "a NUL in it",
            subject(&[cn(UTF8, b"web01\0.evil")]),
            Some(Name),
        ),
        (
            "a NUL after it",
            subject(&[cn(UTF8, b"web01\0")]),
            Some(Name),
        ),
        (
            "a newline in it",
            subject(&[cn(UTF8, b"web01\nweb02")]),
            Some(Name),
        ),
        (
            "bytes that are no UTF-8",
            subject(&[cn(UTF8, b"web01\xff")]),
            Some(Name),
        ),
        (
            "letters that look alike",
            subject(&[cn(UTF8, "w\u{435}b01".as_bytes())]),
            Some(Name),
        ),
        (
            "half a BMPString",
            subject(&[cn(BMP, b"\0w\0e\0b\x000\x001x")]),
            Some(Name),
        ),
        (
            "a CN whose type is spelled in two bytes too many",
            subject(&[
                cn(UTF8, b"web01"),
                tlv(SET, &attribute_of_name(&long_cn, UTF8, b"web02")),
            ]),
            Some(Unreadable),
        ),
        // Keys and signatures.
        ("RSA 1024", rsa(128), Some(Key)),
        ("RSA 2040", rsa(255), Some(Key)),
        ("RSA 8200", rsa(1025), Some(Key)),
        ("RSA without a modulus", rsa(0), Some(Key)),
        ("DSA", dsa, Some(Key)),
        ("another curve", k256, Some(Key)),
        (
            "RSA 2048 signed with another key",
            rsa(256),
            Some(Signature),
        ),
        ("signed with another key", pem(&foreign), Some(Signature)),
        (
            "a byte changed after signing",
            pem(&flipped),
            Some(Signature),
        ),
        ("SHA-1", sha1, Some(Signature)),
        // Rights.
        ("pp_cli_auth", for_ext(&[cli_auth()]), Some(Authorization)),
        (
            "pp_cli_auth behind a fact",
            for_ext(&[role(), cli_auth()]),
            Some(Authorization),
        ),
        (
            "pp_authorization",
            for_ext(&[puppet_extension(&[3, 1])]),
            Some(Authorization),
        ),
        (
            "pp_auth_role",
            for_ext(&[puppet_extension(&[3, 13])]),
            Some(Authorization),
        ),
        (
            "pp_auth_auto_renew as an extension",
            for_ext(&[puppet_extension(&[3, 2])]),
            Some(Authorization),
        ),
        (
            "a right without a name",
            for_ext(&[puppet_extension(&[3, 0x83, 0x7f, 1])]),
            Some(Authorization),
        ),
        (
            "the arc of rights itself",
            for_ext(&[puppet_extension(&[3])]),
            Some(Authorization),
        ),
        (
            "pp_cli_auth, critical",
            for_ext(&[extension(&puppet(&[3, 39]), true, b"true")]),
            Some(Authorization),
        ),
        (
            "pp_cli_auth in Microsoft's attribute",
            with(&[attribute(MICROSOFT, &[seq(&[cli_auth()])])]),
            Some(Authorization),
        ),
        (
            "pp_cli_auth spelled in a byte too many",
            for_ext(&[extension(&puppet(&[3, 0x80, 39]), false, b"x")]),
            Some(Unreadable),
        ),
        (
            "its arc spelled in a byte too many",
            for_ext(&[extension(&puppet(&[0x80, 3, 39]), false, b"x")]),
            Some(Unreadable),
        ),
        // Several attributes that request extensions.
        (
            "two attributes",
            with(&[asking(&[role()]), asking(&[cli_auth()])]),
            Some(Unreadable),
        ),
        (
            "two equal attributes",
            with(&[asking(&[role()]), asking(&[role()])]),
            Some(Unreadable),
        ),
        (
            "PKCS #9's and Microsoft's",
            with(&[
                asking(&[role()]),
                attribute(MICROSOFT, &[seq(&[cli_auth()])]),
            ]),
            Some(Unreadable),
        ),
        (
            "two values in one attribute",
            with(&[attribute(PKCS9, &[seq(&[role()]), seq(&[cli_auth()])])]),
            Some(Unreadable),
        ),
        (
            "an attribute without a value",
            with(&[attribute(PKCS9, &[])]),
            Some(Unreadable),
        ),
        (
            "an attribute whose value is not a SEQUENCE",
            with(&[attribute(PKCS9, &[tlv(UTF8, b"x")])]),
            Some(Unreadable),
        ),
        (
            "one extension twice",
            for_ext(&[role(), role()]),
            Some(Unreadable),
        ),
        ("257 extensions", for_ext(&many), Some(Unreadable)),
        // Other names.
        (
            "another host's name",
            for_ext(&[dns(&["puppet"])]),
            Some(Altnames),
        ),
        (
            "another name beside its own",
            for_ext(&[dns(&["web01", "puppet"])]),
            Some(Altnames),
        ),
        (
            "its own in another case",
            for_ext(&[dns(&["WEB01"])]),
            Some(Altnames),
        ),
        ("a wildcard", for_ext(&[dns(&["*"])]), Some(Altnames)),
        (
            "bytes that are no name",
            for_ext(&[extension(SAN, false, &seq(&[tlv(0x82, b"\x1b[31m\xff")]))]),
            Some(Altnames),
        ),
        (
            "an address",
            for_ext(&[extension(SAN, false, &seq(&[tlv(0x87, &[127, 0, 0, 1])]))]),
            Some(Altnames),
        ),
        (
            "an address, critical",
            for_ext(&[extension(SAN, true, &seq(&[tlv(0x87, &[127, 0, 0, 1])]))]),
            Some(Altnames),
        ),
        (
            "altnames that are no list",
            for_ext(&[extension(SAN, false, b"DNS:puppet")]),
            Some(Unreadable),
        ),
        // Extensions of CAs.
        (
            "to be a CA",
            for_ext(&[extension(BASIC_CONSTRAINTS, true, &seq(&[tlv(1, &[0xff])]))]),
            Some(Extensions),
        ),
        (
            "to be a CA, not critical",
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                false,
                &seq(&[tlv(1, &[0xff])]),
            )]),
            Some(Extensions),
        ),
        (
            "a path length without being a CA",
            for_ext(&[extension(BASIC_CONSTRAINTS, true, &seq(&[tlv(2, &[0])]))]),
            Some(Extensions),
        ),
        (
            "to be a CA, in BER",
            for_ext(&[extension(BASIC_CONSTRAINTS, true, &seq(&[tlv(1, &[1])]))]),
            Some(Unreadable),
        ),
        (
            "to sign certificates",
            for_ext(&[extension(KEY_USAGE, true, &tlv(3, &[1, 0x06]))]),
            Some(Extensions),
        ),
        (
            "a usage that is none",
            for_ext(&[extension(KEY_USAGE, true, &tlv(3, &[9]))]),
            Some(Unreadable),
        ),
        (
            "a usage that leaves bits of no byte unused",
            for_ext(&[extension(KEY_USAGE, true, &tlv(3, &[1]))]),
            Some(Unreadable),
        ),
        (
            "an extension without a name",
            for_ext(&[extension(&[], false, b"x")]),
            Some(Unreadable),
        ),
        (
            "an extension with as long a name as is read",
            for_ext(&[extension(&long_oid(128), false, b"x")]),
            None,
        ),
        (
            "an extension with a longer name",
            for_ext(&[extension(&long_oid(129), false, b"x")]),
            Some(Unreadable),
        ),
        (
            "name constraints",
            for_ext(&[extension(NAME_CONSTRAINTS, false, &seq(&[]))]),
            Some(Extensions),
        ),
        (
            "another issuer's key",
            for_ext(&[extension(AUTHORITY_KEY, false, &seq(&[]))]),
            Some(Extensions),
        ),
        (
            "an unknown extension, critical",
            for_ext(&[extension(&[0x2a, 3, 4], true, &[5, 0])]),
            Some(Extensions),
        ),
        // Not a request.
        ("nothing", Vec::new(), Some(Unreadable)),
        ("garbage", b"csr".to_vec(), Some(Unreadable)),
        ("bytes", vec![0xff; 600], Some(Unreadable)),
        (
            "DER without PEM",
            key.request(&web01(), &[]),
            Some(Unreadable),
        ),
        ("two blocks", [&good[..], &good].concat(), Some(Unreadable)),
        (
            "text before it",
            [b"web01\n", &good[..]].concat(),
            Some(Unreadable),
        ),
        (
            "text after it",
            [&good[..], b"web01\n"].concat(),
            Some(Unreadable),
        ),
        (
            "a NUL after it",
            [&good[..], b"\0"].concat(),
            Some(Unreadable),
        ),
        (
            "a certificate",
            String::from_utf8_lossy(&good)
                .replace(" REQUEST", "")
                .into_bytes(),
            Some(Unreadable),
        ),
        (
            "another END",
            String::from_utf8_lossy(&good)
                .replace("END CERTIFICATE REQUEST", "END NEW CERTIFICATE REQUEST")
                .into_bytes(),
            Some(Unreadable),
        ),
        (
            "a header in the block",
            String::from_utf8_lossy(&good)
                .replace("REQUEST-----\nM", "REQUEST-----\nProc-Type: 4\n\nM")
                .into_bytes(),
            Some(Unreadable),
        ),
        (
            "padding in the middle",
            String::from_utf8_lossy(&good)
                .replacen("\nM", "\n=M", 1)
                .into_bytes(),
            Some(Unreadable),
        ),
        (
            "a line of another alphabet",
            String::from_utf8_lossy(&good)
                .replacen("\nM", "\n-M", 1)
                .into_bytes(),
            Some(Unreadable),
        ),
        ("an empty block", pem(&[]), Some(Unreadable)),
        (
            "BEGIN and END in one line",
            [BEGIN, END].concat(),
            Some(Unreadable),
        ),
        (
            "another version",
            pem(&key.sign(key.info(&[1], &web01(), &[]))),
            Some(Unreadable),
        ),
        (
            "bytes after the attributes",
            trailing_info,
            Some(Unreadable),
        ),
        (
            "bytes after it all",
            pem(&[key.request(&web01(), &[]), vec![5, 0]].concat()),
            Some(Unreadable),
        ),
    ];
    assert!(table.len() >= 40);
    for (what, body, expected) in &table {
        check(what, body, *expected);
    }
}

#[test]
fn a_request_truncated_at_any_byte_is_refused_without_a_panic() {
    let attributes = [
        attribute(CHALLENGE, &[tlv(UTF8, b"x")]),
        asking(&[puppet_extension(&[1, 1]), dns(&["web01"])]),
    ];
    let der = Signer::p256().request(&web01(), &attributes);
    let whole = pem(&der);
    check("whole", &whole, None);
    for cut in 0..der.len() {
        check("DER cut", &pem(&der[..cut]), Some(Unreadable));
    }
    for cut in 0..whole.len() - 1 {
        let body = &whole[..cut];
        assert!(
            CsrPolicy::default().check("web01", body).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_request_with_any_byte_changed_is_refused() {
    let der = Signer::p256().request(&web01(), &[asking(&[puppet_extension(&[1, 1])])]);
    let policy = CsrPolicy::default();
    for at in 0..der.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = der.clone();
            changed[at] ^= flip;
            assert!(
                policy.check("web01", &pem(&changed)).is_err(),
                "byte {at} ^ {flip:02x}"
            );
        }
    }
}

#[test]
fn a_request_of_16_kib_is_checked_like_any_other() {
    let key = Signer::p256();
    let filled = |bytes: usize| {
        let secret = attribute(CHALLENGE, &[tlv(UTF8, &vec![b'x'; bytes])]);
        pem(&key.request(&web01(), &[secret]))
    };
    let room = (1..12_000)
        .rev()
        .find(|bytes| filled(*bytes).len() <= 16 << 10);
    let body = filled(room.expect("some size fits"));
    assert!(body.len() > (16 << 10) - 8, "{}", body.len());
    check("16 KiB", &body, None);
    let deep = (0..4000).fold(Vec::new(), |inner, _| tlv(SEQUENCE, &inner));
    check(
        "thousands of lists, each in the other",
        &pem(&deep),
        Some(Unreadable),
    );
}

#[test]
fn a_rule_is_skipped_alone_and_only_for_named_clients() {
    let key = Signer::p256();
    let cli_auth = pem(&key.request(&web01(), &[asking(&[puppet_extension(&[3, 39])])]));
    let both = pem(&key.request(
        &web01(),
        &[asking(&[puppet_extension(&[3, 39]), dns(&["puppet"])])],
    ));
    let weak = pem(&Signer::p256().sign(key.info(&[0], &web01(), &[])));
    let skipping = |pattern: &str, skip_rules: &[CsrRule]| {
        CsrPolicy::new(CsrSettings {
            allow: vec![CsrAllow {
                certname: vec![CertnamePattern::parse(pattern).expect("a pattern")],
                skip_rules: skip_rules.to_vec(),
            }],
            ..CsrSettings::default()
        })
    };
    check_by(
        &skipping("web*", &[Authorization]),
        "lifted",
        &cli_auth,
        None,
    );
    check_by(
        &skipping("db*", &[Authorization]),
        "for others",
        &cli_auth,
        Some(Authorization),
    );
    check_by(
        &skipping("web*", &[Altnames]),
        "another rule",
        &cli_auth,
        Some(Authorization),
    );
    check_by(
        &skipping("web*", &[Authorization]),
        "one of two",
        &both,
        Some(Altnames),
    );
    check_by(
        &skipping("*", &[Authorization, Altnames]),
        "both",
        &both,
        None,
    );
    check_by(&skipping("*", &[Signature]), "the signature", &weak, None);
    let all = skipping("*", &CsrRule::LIFTABLE);
    check_by(
        &all,
        "never the name",
        &pem(&key.request(&[cn(UTF8, b"web02")], &[])),
        Some(Name),
    );
    let two = with_two_attributes(&key);
    check_by(&all, "never what reads two ways", &two, Some(Unreadable));
}

fn with_two_attributes(key: &Signer) -> Vec<u8> {
    let one = || asking(&[puppet_extension(&[1, 1])]);
    pem(&key.request(&web01(), &[one(), one()]))
}

#[test]
fn a_refusal_names_the_extension_and_its_oid() {
    let key = Signer::p256();
    let text_of = |extension| {
        let body = pem(&key.request(&web01(), &[asking(&[extension])]));
        let refusal = CsrPolicy::default()
            .check("web01", &body)
            .expect_err("it asks");
        refusal.what
    };
    assert_eq!(
        text_of(puppet_extension(&[3, 39])),
        "it requests pp_cli_auth (1.3.6.1.4.1.34380.1.3.39), which grants rights on the servers"
    );
    assert_eq!(
        text_of(puppet_extension(&[3, 0x81, 0x48])),
        "it requests 1.3.6.1.4.1.34380.1.3.200, which may grant rights on the servers"
    );
    let unknown = text_of(extension(&[0x2a, 0x03, 0x84, 0x80, 0x05], true, b"x"));
    assert!(unknown.contains("1.2.3.65541"), "{unknown}");
}

#[test]
fn a_refusal_explains_the_rule_and_the_remedy_and_whether_the_operator_can_skip_it() {
    let rules = [
        Unreadable,
        Name,
        Key,
        Signature,
        Authorization,
        Altnames,
        Extensions,
    ];
    for rule in rules {
        assert_eq!(rule.reason(), format!("csr-{}", rule.as_str()));
        let refusal = pki::CsrRefusal {
            rule,
            what: "it is so".to_owned(),
        };
        let text = refusal.to_string();
        assert!(
            text.starts_with(
                "The proxy did not forward this certificate request to the CA: it is so. "
            ),
            "{text}"
        );
        assert!(text.contains("puppet ssl clean"), "{text}");
        let liftable = text.contains("contact the operator of this proxy");
        assert_eq!(liftable, CsrRule::LIFTABLE.contains(&rule), "{text}");
        // Any client can read this message, so it never explains how to relax the rules of the proxy.
        assert!(!text.contains("[["), "{text}");
    }
}

#[test]
fn kinds_of_keys_have_the_names_of_the_configuration() {
    let words = CsrKey::ALL.map(CsrKey::as_str);
    assert_eq!(
        words,
        ["rsa", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519"]
    );
}

#[test]
fn an_observing_policy_gives_the_same_verdict() {
    let settings = CsrSettings {
        observe: true,
        ..CsrSettings::default()
    };
    let observing = CsrPolicy::new(settings);
    assert!(observing.observes() && !CsrPolicy::default().observes());
    check_by(&observing, "nothing", b"", Some(Unreadable));
}
