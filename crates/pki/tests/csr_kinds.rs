//! Every kind of certificate request, and the rule that it breaks.

use crate::support::requests::*;
use pki::CsrRule::{self, Altnames, Authorization, Extensions, Key, Name, Signature, Unreadable};

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
        let numbers = seq(&[element(0x02, &modulus), element(0x02, &[1, 0, 1])]);
        let algorithm = seq(&[
            oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]),
            vec![5, 0],
        ]);
        let spki = seq(&[algorithm, element(0x03, &[vec![0], numbers].concat())]);
        let info = seq(&[element(0x02, &[0]), seq(&web01()), spki, element(0xa0, &[])]);
        pem(&key.sign(info))
    };
    let dsa = {
        let spki = seq(&[
            seq(&[oid(&[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01])]),
            element(0x03, &[0, 2, 1, 5]),
        ]);
        pem(&key.sign(seq(&[
            element(0x02, &[0]),
            seq(&web01()),
            spki,
            element(0xa0, &[]),
        ])))
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
            element(0x03, &[0, 1]),
        ]))
    };
    let no_attributes = {
        let info = seq(&[element(0x02, &[0]), seq(&web01()), key.spki()]);
        pem(&key.sign(info))
    };
    let trailing_info = {
        let info = seq(&[
            element(0x02, &[0]),
            seq(&web01()),
            key.spki(),
            element(0xa0, &[]),
            element(0x05, &[]),
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
                element(SET, &attribute_of_name(O, UTF8, b"Lab")),
                cn(UTF8, b"web01"),
            ]),
            None,
        ),
        (
            "challengePassword",
            with(&[attribute(CHALLENGE, &[element(UTF8, b"secret")])]),
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
            with(&[attribute(&puppet(&[3, 2]), &[element(UTF8, b"true")])]),
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
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                true,
                &seq(&[element(1, &[0])]),
            )]),
            None,
        ),
        (
            "usage of an agent",
            for_ext(&[extension(KEY_USAGE, true, &element(3, &[5, 0xa0]))]),
            None,
        ),
        (
            "a usage for nothing",
            for_ext(&[extension(KEY_USAGE, true, &element(3, &[0]))]),
            None,
        ),
        (
            "pp_role, critical",
            for_ext(&[extension(&puppet(&[1, 13]), true, &element(UTF8, b"web"))]),
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
            subject(&[element(
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
            "a CN and an O in one RDN",
            subject(&[element(
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
            subject(&[element(SET, &attribute_of_name(O, UTF8, b"web01"))]),
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
            "a CN whose type is encoded with two extra bytes",
            subject(&[
                cn(UTF8, b"web01"),
                element(SET, &attribute_of_name(&long_cn, UTF8, b"web02")),
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
            "pp_cli_auth encoded with an extra byte",
            for_ext(&[extension(&puppet(&[3, 0x80, 39]), false, b"x")]),
            Some(Unreadable),
        ),
        (
            "its arc encoded with an extra byte",
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
            with(&[attribute(PKCS9, &[element(UTF8, b"x")])]),
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
            "another name in addition to its own",
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
            for_ext(&[extension(
                SAN,
                false,
                &seq(&[element(0x82, b"\x1b[31m\xff")]),
            )]),
            Some(Altnames),
        ),
        (
            "an address",
            for_ext(&[extension(
                SAN,
                false,
                &seq(&[element(0x87, &[127, 0, 0, 1])]),
            )]),
            Some(Altnames),
        ),
        (
            "an address, critical",
            for_ext(&[extension(
                SAN,
                true,
                &seq(&[element(0x87, &[127, 0, 0, 1])]),
            )]),
            Some(Altnames),
        ),
        (
            "altnames that are not a SEQUENCE",
            for_ext(&[extension(SAN, false, b"DNS:puppet")]),
            Some(Unreadable),
        ),
        // Extensions of CAs.
        (
            "to be a CA",
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                true,
                &seq(&[element(1, &[0xff])]),
            )]),
            Some(Extensions),
        ),
        (
            "to be a CA, not critical",
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                false,
                &seq(&[element(1, &[0xff])]),
            )]),
            Some(Extensions),
        ),
        (
            "a path length without being a CA",
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                true,
                &seq(&[element(2, &[0])]),
            )]),
            Some(Extensions),
        ),
        (
            "to be a CA, in BER",
            for_ext(&[extension(
                BASIC_CONSTRAINTS,
                true,
                &seq(&[element(1, &[1])]),
            )]),
            Some(Unreadable),
        ),
        (
            "to sign certificates",
            for_ext(&[extension(KEY_USAGE, true, &element(3, &[1, 0x06]))]),
            Some(Extensions),
        ),
        (
            "a usage that is none",
            for_ext(&[extension(KEY_USAGE, true, &element(3, &[9]))]),
            Some(Unreadable),
        ),
        (
            "a usage that leaves bits of no byte unused",
            for_ext(&[extension(KEY_USAGE, true, &element(3, &[1]))]),
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
