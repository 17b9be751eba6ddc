//! Every kind of certificate request, with the rule that it violates.

use std::sync::LazyLock;

use crate::support::requests::*;
use pki::CsrRule::{self, Altnames, Authorization, Extensions, Key, Name, Signature, Unreadable};

static KEY: LazyLock<Signer> = LazyLock::new(Signer::p256);

fn subject(rdns: &[Vec<u8>]) -> Vec<u8> {
    pem(&KEY.request(rdns, &[]))
}

fn with(attributes: &[Vec<u8>]) -> Vec<u8> {
    pem(&KEY.request(&web01(), attributes))
}

fn for_ext(extensions: &[Vec<u8>]) -> Vec<u8> {
    with(&[asking(extensions)])
}

fn basic_constraints(critical: bool, content: &[Vec<u8>]) -> Vec<u8> {
    for_ext(&[extension(BASIC_CONSTRAINTS, critical, &seq(content))])
}

fn key_usage(bits: &[u8]) -> Vec<u8> {
    for_ext(&[extension(KEY_USAGE, true, &element(3, bits))])
}

fn altname(critical: bool, tag: u8, name: &[u8]) -> Vec<u8> {
    for_ext(&[extension(SAN, critical, &seq(&[element(tag, name)]))])
}

fn cli_auth() -> Vec<u8> {
    puppet_extension(&[3, 39])
}

fn role() -> Vec<u8> {
    puppet_extension(&[1, 13])
}

/// Checks requests that violate the same rule. Each has a description.
#[track_caller]
fn check_all(expected: Option<CsrRule>, requests: &[(&str, Vec<u8>)]) {
    for (what, body) in requests {
        check(what, body, expected);
    }
}

#[test]
fn requests_of_agents_and_of_openssl_are_accepted() {
    let no_attributes = seq(&[element(0x02, &[0]), seq(&web01()), KEY.spki()]);
    check_all(
        None,
        &[
            ("plain", with(&[])),
            ("without attributes at all", pem(&KEY.sign(no_attributes))),
            ("a PrintableString", subject(&[cn(PRINTABLE, b"web01")])),
            ("an IA5String", subject(&[cn(IA5, b"web01")])),
            (
                "more than a CN",
                subject(&[
                    element(SET, &attribute_of_name(O, UTF8, b"Lab")),
                    cn(UTF8, b"web01"),
                ]),
            ),
            (
                "challengePassword",
                with(&[attribute(CHALLENGE, &[element(UTF8, b"secret")])]),
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
            ),
            (
                "auto-renewal as an attribute",
                with(&[attribute(&puppet(&[3, 2]), &[element(UTF8, b"true")])]),
            ),
        ],
    );
}

#[test]
fn harmless_extensions_and_other_forms_of_pem_are_accepted() {
    let good = with(&[]);
    check_all(
        None,
        &[
            ("its own name as altname", for_ext(&[dns(&["web01"])])),
            ("no CA", basic_constraints(true, &[])),
            (
                "plainly no CA",
                basic_constraints(true, &[element(1, &[0])]),
            ),
            ("usage of an agent", key_usage(&[5, 0xa0])),
            ("a usage for nothing", key_usage(&[0])),
            (
                "pp_role, critical",
                for_ext(&[extension(&puppet(&[1, 13]), true, &element(UTF8, b"web"))]),
            ),
            (
                "purpose of an agent",
                for_ext(&[extension(
                    EKU,
                    true,
                    &seq(&[oid(&[0x2b, 6, 1, 5, 5, 7, 3, 2])]),
                )]),
            ),
            (
                "an unknown extension, not critical",
                for_ext(&[extension(&[0x2a, 3, 4], false, &[5, 0])]),
            ),
            (
                "Microsoft's attribute with a fact",
                with(&[attribute(MICROSOFT, &[seq(&[role()])])]),
            ),
            ("no extensions in the attribute", for_ext(&[])),
            (
                "with carriage returns",
                String::from_utf8_lossy(&good)
                    .replace('\n', "\r\n")
                    .into_bytes(),
            ),
            ("blanks around it", [b"\n ", &good[..], b"\n\n"].concat()),
        ],
    );
}

#[test]
fn a_request_has_one_cn_which_is_the_name_that_it_is_sent_for() {
    let long_cn = &[0x55, 0x04, 0x80, 0x03];
    check_all(
        Some(Name),
        &[
            ("another name", subject(&[cn(UTF8, b"web02")])),
            ("another case", subject(&[cn(UTF8, b"Web01")])),
            (
                "two CNs",
                subject(&[cn(UTF8, b"web01"), cn(UTF8, b"web02")]),
            ),
            (
                "the same CN twice",
                subject(&[cn(UTF8, b"web01"), cn(UTF8, b"web01")]),
            ),
            (
                "two CNs in one RDN",
                subject(&[element(
                    SET,
                    &[
                        attribute_of_name(CN, UTF8, b"web01"),
                        attribute_of_name(CN, UTF8, b"web02"),
                    ]
                    .concat(),
                )]),
            ),
            (
                "a CN and an O in one RDN",
                subject(&[element(
                    SET,
                    &[
                        attribute_of_name(O, UTF8, b"x"),
                        attribute_of_name(CN, UTF8, b"web01"),
                    ]
                    .concat(),
                )]),
            ),
            ("no subject", subject(&[])),
            (
                "no CN",
                subject(&[element(SET, &attribute_of_name(O, UTF8, b"web01"))]),
            ),
            ("an empty CN", subject(&[cn(UTF8, b"")])),
            ("a T61String", subject(&[cn(T61, b"web01")])),
            ("a NUL in it", subject(&[cn(UTF8, b"web01\0.evil")])),
            ("a NUL after it", subject(&[cn(UTF8, b"web01\0")])),
            ("a newline in it", subject(&[cn(UTF8, b"web01\nweb02")])),
            (
                "bytes that are no UTF-8",
                subject(&[cn(UTF8, b"web01\xff")]),
            ),
            (
                "letters that look alike",
                subject(&[cn(UTF8, "w\u{435}b01".as_bytes())]),
            ),
            (
                "half a BMPString",
                subject(&[cn(BMP, b"\0w\0e\0b\x000\x001x")]),
            ),
        ],
    );
    check_all(
        Some(Unreadable),
        &[(
            "a CN whose type is encoded with two extra bytes",
            subject(&[
                cn(UTF8, b"web01"),
                element(SET, &attribute_of_name(long_cn, UTF8, b"web02")),
            ]),
        )],
    );
}

#[test]
fn small_keys_and_foreign_or_old_signatures_are_refused() {
    let with_spki = |spki| {
        pem(&KEY.sign(seq(&[
            element(0x02, &[0]),
            seq(&web01()),
            spki,
            element(0xa0, &[]),
        ])))
    };
    let rsa = |bytes: usize| {
        let modulus = [vec![0], vec![0xc1; bytes]].concat();
        let numbers = seq(&[element(0x02, &modulus), element(0x02, &[1, 0, 1])]);
        let algorithm = seq(&[
            oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]),
            vec![5, 0],
        ]);
        with_spki(seq(&[
            algorithm,
            element(0x03, &[vec![0], numbers].concat()),
        ]))
    };
    let dsa = seq(&[
        seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01])]),
        element(0x03, &[0, 2, 1, 5]),
    ]);
    let info = || KEY.info(&[0], &web01(), &[]);
    let position = |bytes: &[u8], part: &[u8]| {
        bytes
            .windows(part.len())
            .position(|at| at == part)
            .expect("the part")
    };
    let mut k256 = info();
    let curve = position(&k256, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]);
    k256[curve + 7] = 0x0a;
    let mut flipped = KEY.request(&web01(), &[asking(&[role()])]);
    let value = position(&flipped, b"true");
    flipped[value] = b'T';
    let ecdsa_sha1 = seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01])]);
    let sha1 = seq(&[info(), ecdsa_sha1, element(0x03, &[0, 1])]);
    check_all(
        Some(Key),
        &[
            ("RSA 1024", rsa(128)),
            ("RSA 2040", rsa(255)),
            ("RSA 8200", rsa(1025)),
            ("RSA without a modulus", rsa(0)),
            ("DSA", with_spki(dsa)),
            ("another curve", pem(&KEY.sign(k256))),
        ],
    );
    check_all(
        Some(Signature),
        &[
            ("RSA 2048 signed with another key", rsa(256)),
            ("signed with another key", pem(&Signer::p256().sign(info()))),
            ("a byte changed after signing", pem(&flipped)),
            ("SHA-1", pem(&sha1)),
        ],
    );
}

#[test]
fn no_request_for_rights_on_servers_is_accepted_in_any_encoding() {
    check_all(
        Some(Authorization),
        &[
            ("pp_cli_auth", for_ext(&[cli_auth()])),
            ("pp_cli_auth behind a fact", for_ext(&[role(), cli_auth()])),
            ("pp_authorization", for_ext(&[puppet_extension(&[3, 1])])),
            ("pp_auth_role", for_ext(&[puppet_extension(&[3, 13])])),
            (
                "pp_auth_auto_renew as an extension",
                for_ext(&[puppet_extension(&[3, 2])]),
            ),
            (
                "a right without a name",
                for_ext(&[puppet_extension(&[3, 0x83, 0x7f, 1])]),
            ),
            (
                "the arc of rights itself",
                for_ext(&[puppet_extension(&[3])]),
            ),
            (
                "pp_cli_auth, critical",
                for_ext(&[extension(&puppet(&[3, 39]), true, b"true")]),
            ),
            (
                "pp_cli_auth in Microsoft's attribute",
                with(&[attribute(MICROSOFT, &[seq(&[cli_auth()])])]),
            ),
        ],
    );
    check_all(
        Some(Unreadable),
        &[
            (
                "pp_cli_auth encoded with an extra byte",
                for_ext(&[extension(&puppet(&[3, 0x80, 39]), false, b"x")]),
            ),
            (
                "its arc encoded with an extra byte",
                for_ext(&[extension(&puppet(&[0x80, 3, 39]), false, b"x")]),
            ),
        ],
    );
}

#[test]
fn ambiguous_requests_for_extensions_are_unreadable() {
    let many: Vec<_> = (0..=256_u16)
        .map(|n| puppet_extension(&[2, 0x81 + (n >> 7) as u8, (n & 0x7f) as u8]))
        .collect();
    check_all(
        Some(Unreadable),
        &[
            (
                "two attributes",
                with(&[asking(&[role()]), asking(&[cli_auth()])]),
            ),
            (
                "two equal attributes",
                with(&[asking(&[role()]), asking(&[role()])]),
            ),
            (
                "PKCS #9's and Microsoft's",
                with(&[
                    asking(&[role()]),
                    attribute(MICROSOFT, &[seq(&[cli_auth()])]),
                ]),
            ),
            (
                "two values in one attribute",
                with(&[attribute(PKCS9, &[seq(&[role()]), seq(&[cli_auth()])])]),
            ),
            (
                "an attribute without a value",
                with(&[attribute(PKCS9, &[])]),
            ),
            (
                "an attribute whose value is not a SEQUENCE",
                with(&[attribute(PKCS9, &[element(UTF8, b"x")])]),
            ),
            ("one extension twice", for_ext(&[role(), role()])),
            ("257 extensions", for_ext(&many)),
        ],
    );
}

#[test]
fn names_other_than_its_own_are_refused() {
    check_all(
        Some(Altnames),
        &[
            ("another host's name", for_ext(&[dns(&["puppet"])])),
            (
                "another name in addition to its own",
                for_ext(&[dns(&["web01", "puppet"])]),
            ),
            ("its own in another case", for_ext(&[dns(&["WEB01"])])),
            ("a wildcard", for_ext(&[dns(&["*"])])),
            (
                "bytes that are no name",
                altname(false, 0x82, b"\x1b[31m\xff"),
            ),
            ("an address", altname(false, 0x87, &[127, 0, 0, 1])),
            ("an address, critical", altname(true, 0x87, &[127, 0, 0, 1])),
        ],
    );
    check_all(
        Some(Unreadable),
        &[(
            "altnames that are not a SEQUENCE",
            for_ext(&[extension(SAN, false, b"DNS:puppet")]),
        )],
    );
}

#[test]
fn extensions_of_cas_are_refused() {
    check_all(
        Some(Extensions),
        &[
            (
                "to be a CA",
                basic_constraints(true, &[element(1, &[0xff])]),
            ),
            (
                "to be a CA, not critical",
                basic_constraints(false, &[element(1, &[0xff])]),
            ),
            (
                "a path length without being a CA",
                basic_constraints(true, &[element(2, &[0])]),
            ),
            ("to sign certificates", key_usage(&[1, 0x06])),
            (
                "name constraints",
                for_ext(&[extension(NAME_CONSTRAINTS, false, &seq(&[]))]),
            ),
            (
                "another issuer's key",
                for_ext(&[extension(AUTHORITY_KEY, false, &seq(&[]))]),
            ),
            (
                "an unknown extension, critical",
                for_ext(&[extension(&[0x2a, 3, 4], true, &[5, 0])]),
            ),
        ],
    );
    check_all(
        Some(Unreadable),
        &[
            (
                "to be a CA, in BER",
                basic_constraints(true, &[element(1, &[1])]),
            ),
            ("a usage that is none", key_usage(&[9])),
            (
                "a usage that leaves bits of no byte unused",
                key_usage(&[1]),
            ),
            (
                "an extension without a name",
                for_ext(&[extension(&[], false, b"x")]),
            ),
            (
                "an extension with a longer name",
                for_ext(&[extension(&long_oid(129), false, b"x")]),
            ),
        ],
    );
    check_all(
        None,
        &[(
            "an extension with as long a name as is read",
            for_ext(&[extension(&long_oid(128), false, b"x")]),
        )],
    );
}

#[test]
fn what_another_parser_could_read_differently_is_unreadable() {
    let good = with(&[]);
    let replaced = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&good);
        text.replacen(from, to, 1).into_bytes()
    };
    let info = |parts: &[Vec<u8>]| {
        seq(&[&[element(0x02, &[0]), seq(&web01()), KEY.spki()], parts].concat())
    };
    check_all(
        Some(Unreadable),
        &[
            ("nothing", Vec::new()),
            ("garbage", b"csr".to_vec()),
            ("bytes", vec![0xff; 600]),
            ("DER without PEM", KEY.request(&web01(), &[])),
            ("two blocks", [&good[..], &good].concat()),
            ("text before it", [b"web01\n", &good[..]].concat()),
            ("text after it", [&good[..], b"web01\n"].concat()),
            ("a NUL after it", [&good[..], b"\0"].concat()),
            (
                "a certificate",
                String::from_utf8_lossy(&good)
                    .replace(" REQUEST", "")
                    .into_bytes(),
            ),
            (
                "another END",
                replaced("END CERTIFICATE REQUEST", "END NEW CERTIFICATE REQUEST"),
            ),
            (
                "a header in the block",
                replaced("REQUEST-----\nM", "REQUEST-----\nProc-Type: 4\n\nM"),
            ),
            ("padding in the middle", replaced("\nM", "\n=M")),
            ("a line of another alphabet", replaced("\nM", "\n-M")),
            ("an empty block", pem(&[])),
            ("BEGIN and END in one line", [BEGIN, END].concat()),
            (
                "another version",
                pem(&KEY.sign(KEY.info(&[1], &web01(), &[]))),
            ),
            (
                "bytes after the attributes",
                pem(&KEY.sign(info(&[element(0xa0, &[]), element(0x05, &[])]))),
            ),
            (
                "bytes after it all",
                pem(&[KEY.request(&web01(), &[]), vec![5, 0]].concat()),
            ),
        ],
    );
}
