//! Addresses and constraints, byte by byte; whole chains are in the crate's `tests/email_constraints.rs`.

use super::*;

#[test]
fn a_constraint_is_one_address_or_a_host_or_the_hosts_below_it() {
    for (base, address, holds) in [
        ("root@example.com", "root@example.com", true),
        ("root@example.com", "root@EXAMPLE.com", true),
        // RFC 5280, 7.5: the part before the `@` is case-sensitive.
        ("root@example.com", "Root@example.com", false),
        ("root@example.com", "root@www.example.com", false),
        ("root@example.com", "toor@example.com", false),
        // An asterisk is an ordinary character.
        ("*@example.com", "*@example.com", true),
        ("*@example.com", "root@example.com", false),
        ("root*@example.com", "root*@example.com", true),
        ("root*@example.com", "root2@example.com", false),
        ("example.com", "root@example.com", true),
        ("Example.COM", "root@eXample.com", true),
        ("example.com", "root@www.example.com", false),
        ("example.com", "root@notexample.com", false),
        ("example.com", "example.com@example.org", false),
        (".example.com", "root@www.example.com", true),
        (".example.com", "root@a.b.EXAMPLE.com", true),
        (".example.com", "root@example.com", false),
        (".example.com", "root@notexample.com", false),
        (".example.com", "root@www.example.com.org", false),
        (".a-long-name.example.com", "r@b.c", false),
    ] {
        let mailbox = Mailbox::read(address.as_bytes()).expect(address);
        let subtree = Subtree::read(base.as_bytes()).expect(base);
        assert_eq!(subtree.holds(mailbox), holds, "{base} {address}");
    }
}

#[test]
fn invalid_addresses_are_refused() {
    for address in [
        &b""[..],
        b"@",
        b"root",
        b"root@",
        b"@example.com",
        b"root@@example.com",
        b"root@host@example.com",
        b"root@.example.com",
        b"root@example.com.",
        b"root@example..com",
        b"root@exa mple.com",
        b"root@exa_mple.com",
        b"root@*.example.com",
        b"root@[192.0.2.1]",
        b"root@example.com\0",
        b"root\0@example.com",
        b".root@example.com",
        b"root.@example.com",
        b"ro..ot@example.com",
        b"ro ot@example.com",
        b"\"root\"@example.com",
        b"ro\\ot@example.com",
        b"root(toor)@example.com",
        b"Root <root@example.com>",
        b"root@example.com, root@example.org",
        b"r\xf6\xf6t@example.com",
        b"root@ex\xe4mple.com",
        "root@exämple.com".as_bytes(),
        "rööt@example.com".as_bytes(),
    ] {
        assert_eq!(Mailbox::read(address), None, "{address:?}");
        // Nor is it valid in a constraint.
        if address.contains(&b'@') {
            assert_eq!(Subtree::read(address), None, "{address:?}");
        }
    }
    for base in [
        &b""[..],
        b".",
        b"..example.com",
        b"example.com.",
        b"*.example.com",
        b"exa mple.com",
        b"ex\xe4mple.com",
        b"mailto:root",
        b"192.0.2.0/24",
    ] {
        assert_eq!(Subtree::read(base), None, "{base:?}");
    }
}

#[test]
fn constraints_are_parsed_only_in_the_encoding_of_rfc_5280() {
    let base = element(RFC822_NAME, b"example.com");
    let dns = element(0x82, b"example.com");
    let subtree = |content: &[u8]| element(der::SEQUENCE, content);
    let permitted = |content: &[u8]| element(der::SEQUENCE, &element(0xa0, content));
    let both = [
        element(0xa0, &[subtree(&base), subtree(&dns)].concat()),
        element(0xa1, &subtree(&base)),
    ]
    .concat();
    let whole = element(der::SEQUENCE, &both);
    let read = EmailConstraint::read(&whole).expect("right");
    assert_eq!(read.permitted, [b"example.com"]);
    assert_eq!(read.excluded, [b"example.com"]);
    assert!(!are_checked_here(&whole), "a DNS name among them");
    assert!(are_checked_here(&permitted(&subtree(&base))));
    assert!(!are_checked_here(&permitted(&subtree(&dns))));
    let minimum = [&base[..], &[0x80, 1, 0]].concat();
    let maximum = [&base[..], &[0x81, 1, 9]].concat();
    for wrong in [
        Vec::new(),
        vec![0x30],
        permitted(&base),
        permitted(&subtree(&minimum)),
        permitted(&subtree(&maximum)),
        permitted(&subtree(&[])),
        // An address is never constructed, and there is no tenth form.
        permitted(&subtree(&element(0xa1, b"example.com"))),
        permitted(&subtree(&element(0x89, b"example.com"))),
        permitted(&subtree(&element(0x16, b"example.com"))),
        // A third list, or the second list before the first.
        element(der::SEQUENCE, &element(0xa2, &subtree(&base))),
        element(
            der::SEQUENCE,
            &[
                element(0xa1, &subtree(&base)),
                element(0xa0, &subtree(&base)),
            ]
            .concat(),
        ),
        [whole.clone(), vec![0]].concat(),
        whole[..whole.len() - 1].to_vec(),
    ] {
        assert!(EmailConstraint::read(&wrong).is_err(), "{wrong:02x?}");
        assert!(!are_checked_here(&wrong), "{wrong:02x?}");
    }
}

#[test]
fn alternative_names_have_only_the_nine_forms() {
    let names = |name: &[u8]| element(der::SEQUENCE, name);
    let address = element(RFC822_NAME, b"root@example.com");
    let dns = element(0x82, b"example.com");
    let both = names(&[dns, address].concat());
    assert_eq!(
        alternative_addresses(Some(&both)).expect("right"),
        [b"root@example.com"]
    );
    for tag in OTHER_FORMS.into_iter().filter(|tag| *tag != OTHER_NAME) {
        assert_eq!(
            alternative_addresses(Some(&names(&element(tag, b"x")))).expect("right"),
            [b""; 0]
        );
    }
    // Neither an address nor a host name is constructed, and there is no tenth form.
    for tag in [0xa1, 0xa2, 0x89, 0x16] {
        let odd = names(&element(tag, b"root@example.com"));
        assert!(alternative_addresses(Some(&odd)).is_err(), "{tag:02x}");
    }
}

#[test]
fn every_subtree_is_parsed_before_any_is_used() {
    let mailbox = Mailbox::read(b"root@example.com").expect("right");
    let check = |permitted: &[&'static [u8]], excluded: &[&'static [u8]]| {
        let constraint = EmailConstraint {
            permitted: permitted.to_vec(),
            excluded: excluded.to_vec(),
            has_others: false,
        };
        constraint.check(mailbox)
    };
    let refused = Err(EmailFault::NotAdmitted("root@example.com".into()));
    assert_eq!(check(&[b"example.com"], &[]), Ok(()));
    assert_eq!(check(&[b"example.org", b"root@example.com"], &[]), Ok(()));
    assert_eq!(check(&[], &[b".example.com", b"example.org"]), Ok(()));
    assert_eq!(check(&[b"example.org", b".example.com"], &[]), refused);
    // An excluded address stays excluded, whatever is permitted.
    assert_eq!(check(&[b"example.com"], &[b"root@example.com"]), refused);
    assert_eq!(check(&[], &[b"example.org", b"example.com"]), refused);
    for unreadable in [&b""[..], b"a@b@example.com", b"\xe4.example.com"] {
        assert_eq!(
            check(&[b"example.com", unreadable], &[]),
            Err(EmailFault::Constraint)
        );
        assert_eq!(
            check(&[b"example.com"], &[unreadable]),
            Err(EmailFault::Constraint)
        );
    }
    assert_eq!(check(&[&b"example.com"[..]; SUBTREES_MAX], &[]), Ok(()));
    assert_eq!(
        check(&[&b"example.com"[..]; SUBTREES_MAX], &[b"example.org"]),
        Err(EmailFault::TooMany)
    );
}

/// A DER element under 128 bytes.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short");
    [&[tag, length], content].concat()
}
