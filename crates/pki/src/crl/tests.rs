//! Tests which CRLs are usable, which of two is newer, and which serials they contain.

use rustls_pki_types::UnixTime;

use super::*;
use crate::settings::Revocation;

const FROM: &[u8] = b"\x17\x0d250101000000Z";
const UNTIL: &[u8] = b"\x17\x0d300101000000Z";

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).expect("short");
    let header = match length {
        ..0x80 => vec![tag, length],
        0x80.. => vec![tag, 0x81, length],
    };
    [header, content].concat()
}

fn extension(leaf: u8, critical: Option<u8>, value: &[u8]) -> Vec<u8> {
    let critical = critical.map_or(Vec::new(), |byte| tlv(0x01, &[&[byte]]));
    let id = tlv(0x06, &[&[0x55, 0x1d, leaf]]);
    tlv(0x30, &[&id, &critical, &tlv(0x04, &[value])])
}

fn number(digits: &[u8]) -> Vec<u8> {
    extension(20, None, &tlv(0x02, &[digits]))
}

fn entry(serial: &[u8], extensions: &[u8]) -> Vec<u8> {
    let extensions = match extensions {
        [] => Vec::new(),
        some => tlv(0x30, &[some]),
    };
    tlv(0x30, &[&tlv(0x02, &[serial]), FROM, &extensions])
}

/// A CRL with these fields after its version. These tests do not check its signature.
fn crl_der(version: &[u8], fields: &[&[u8]]) -> Vec<u8> {
    let algorithm = tlv(0x30, &[&[0x06, 0x03, 0x2b, 0x65, 0x70]]);
    let issuer = tlv(0x30, &[]);
    let signed = tlv(0x30, &[version, &algorithm, &issuer, &fields.concat()]);
    tlv(0x30, &[&signed, &algorithm, &tlv(0x03, &[&[0, 0]])])
}

const VERSION_2: &[u8] = &[0x02, 1, 1];

fn with(extensions: &[u8], entries: &[u8]) -> Result<Crl, CrlError> {
    let extensions = tlv(0xa0, &[&tlv(0x30, &[extensions])]);
    let entries = match entries {
        [] => Vec::new(),
        some => tlv(0x30, &[some]),
    };
    Crl::read(&crl_der(VERSION_2, &[FROM, UNTIL, &entries, &extensions]))
}

fn valid(digits: &[u8], serials: &[&[u8]]) -> Crl {
    let entries: Vec<u8> = serials
        .iter()
        .flat_map(|serial| entry(serial, &[]))
        .collect();
    with(&number(digits), &entries).expect("a valid CRL")
}

#[test]
fn an_incomplete_crl_is_unusable() {
    let point = tlv(0x30, &[&[0x81, 1, 0xff]]);
    for (extensions, why) in [
        (
            extension(27, Some(0xff), &tlv(0x02, &[&[1]])),
            Unusable::Delta,
        ),
        (extension(28, Some(0xff), &point), Unusable::Partitioned),
        (extension(28, None, &point), Unusable::Partitioned),
        (extension(99, Some(0xff), b""), Unusable::CriticalExtension),
        (number(&[0x80]), Unusable::BadNumber),
        (number(&[]), Unusable::BadNumber),
        (number(&[1; 22]), Unusable::BadNumber),
        (number(&[1]).repeat(2), Unusable::BadNumber),
        (
            extension(20, Some(0xff), &tlv(0x02, &[&[1]])),
            Unusable::BadNumber,
        ),
    ] {
        let extensions = match why {
            Unusable::BadNumber => extensions,
            _ => [number(&[1]), extensions].concat(),
        };
        assert_eq!(with(&extensions, &[]).err(), Some(CrlError::Unusable(why)));
    }
    for usable in [extension(99, None, b""), extension(35, Some(0), b"")] {
        assert!(with(&[number(&[1]), usable].concat(), &[]).is_ok());
    }
    assert!(with(&number(&[1; 21]), &[]).is_ok());
    assert!(with(&[], &[]).is_ok_and(|crl| crl.number.is_none()));
}

#[test]
fn entries_of_other_issuers_or_with_unknown_critical_extensions_make_a_crl_unusable() {
    let read = |extensions: &[u8]| with(&number(&[1]), &entry(&[5], extensions)).err();
    let issuer = extension(29, None, &tlv(0x30, &[]));
    let unusable = |why| Some(CrlError::Unusable(why));
    assert_eq!(read(&issuer), unusable(Unusable::Partitioned));
    assert_eq!(
        read(&extension(99, Some(0xff), b"")),
        unusable(Unusable::CriticalExtension)
    );
    for harmless in [
        extension(21, Some(0xff), &[0x0a, 1, 1]),
        extension(24, Some(0xff), FROM),
        extension(99, None, b""),
    ] {
        assert_eq!(read(&harmless), None);
    }
    assert!(matches!(read(b"\x30\x01"), Some(CrlError::Der(_))));
}

#[test]
fn versions_and_dates_are_those_of_rfc_5280() {
    let extensions = tlv(0xa0, &[&tlv(0x30, &[&number(&[1])])]);
    let read = |version: &[u8], fields: &[&[u8]]| Crl::read(&crl_der(version, fields));
    let crl = read(VERSION_2, &[FROM, UNTIL, &extensions]).expect("a valid CRL");
    assert_eq!(crl.this_update.as_secs(), 1_735_689_600);
    assert_eq!(
        crl.next_update.map(|end| end.as_secs()),
        Some(1_893_456_000)
    );
    let endless = read(VERSION_2, &[FROM, &extensions]).expect("a valid CRL");
    assert!(endless.next_update.is_none() && !endless.is_expired(at(u64::MAX)));
    for version_1 in [&[][..], &[0x02, 1, 0]] {
        let crl = read(version_1, &[FROM, UNTIL]).expect("a valid CRL");
        assert_eq!((crl.number, crl.serials.len()), (None, 0));
    }
    let bad_version = Some(CrlError::Der(DerError::Value));
    assert_eq!(
        read(&[0x02, 1, 2], &[FROM, UNTIL, &extensions]).err(),
        bad_version
    );
    for fields in [
        &[&extensions[..]][..],
        &[UNTIL, UNTIL, UNTIL],
        &[FROM, UNTIL, &extensions, b"\x05\x00"],
    ] {
        assert!(
            matches!(read(VERSION_2, fields), Err(CrlError::Der(_))),
            "{fields:x?}"
        );
    }
}

#[test]
fn a_crl_expires_after_its_last_second() {
    let crl = valid(&[1], &[]);
    assert!(!crl.is_expired(at(1_893_456_000)));
    assert!(crl.is_expired(at(1_893_456_001)));
    let until = |crl_expired, unchecked| {
        let policy = IssuerPolicy {
            crl_expired,
            unchecked,
            revocation: Revocation::Chain,
        };
        crl.accepted_until(policy).map(|end| end.as_secs())
    };
    let grace = CrlExpired::Grace(Duration::from_secs(60));
    assert_eq!(until(CrlExpired::Reject, false), Some(1_893_456_000));
    assert_eq!(until(grace, false), Some(1_893_456_060));
    assert_eq!(until(CrlExpired::Warn, false), None);
    assert_eq!(until(CrlExpired::Reject, true), None);
}

#[test]
fn the_newer_has_the_higher_number_then_the_later_date_then_more_entries() {
    let order = |a: &Crl, b: &Crl| (a.age(b), b.age(a));
    let newer = (Ordering::Greater, Ordering::Less);
    assert_eq!(order(&valid(&[2], &[]), &valid(&[1], &[])), newer);
    assert_eq!(
        order(&valid(&[1, 0], &[]), &valid(&[0x7f], &[])),
        newer,
        "longer is more"
    );
    assert_eq!(
        order(&valid(&[0, 0x80], &[]), &valid(&[0x7f], &[])),
        newer,
        "the sign byte is none"
    );
    assert_eq!(order(&valid(&[1], &[&[5]]), &valid(&[1], &[])), newer);
    let extensions = tlv(0xa0, &[&tlv(0x30, &[&number(&[1])])]);
    let later = Crl::read(&crl_der(VERSION_2, &[UNTIL, &extensions])).expect("a valid CRL");
    assert_eq!(order(&later, &valid(&[1], &[&[5]])), newer);
    assert_eq!(
        valid(&[1], &[&[5]]).age(&valid(&[1], &[&[6]])),
        Ordering::Equal
    );
    // If neither CRL has a number, the date decides.
    let bare = |date| Crl::read(&crl_der(&[], &[date])).expect("a valid CRL");
    assert_eq!(order(&bare(UNTIL), &bare(FROM)), newer);
    assert_eq!(order(&bare(UNTIL), &valid(&[9], &[])), newer);
    assert_eq!(order(&later, &bare(FROM)), newer);
    assert!(bare(FROM).is_before(&bare(UNTIL)) && !bare(FROM).is_before(&bare(FROM)));
    assert!(valid(&[1], &[]).is_before(&valid(&[2], &[])));
    assert!(!later.is_before(&bare(FROM)) && bare(FROM).is_before(&later));
}

#[test]
fn short_numbers_are_printed_as_decimal() {
    assert_eq!(with(&[], &[]).expect("a valid CRL").number_text(), "none");
    for (digits, text) in [
        (&[0][..], "0"),
        (&[1, 0], "256"),
        (&[0, 0xff], "255"),
        (&[0x7f; 15], "662007668488958101406994104531779455"),
        (&[0x7f; 16], "0x7F7F7F7F7F7F7F7F7F7F7F7F7F7F7F7F"),
    ] {
        assert_eq!(valid(digits, &[]).number_text(), text);
    }
}

#[test]
fn serials_are_found_by_value_whatever_their_length_and_order() {
    let serials: Vec<Vec<u8>> = (1..=9_u8)
        .flat_map(|length| (1..=7_u8).map(move |digit| vec![digit * 16; usize::from(length)]))
        .collect();
    let listed: Vec<&[u8]> = serials.iter().rev().map(Vec::as_slice).collect();
    // CRLs in these tests are short, so each length needs one byte.
    for length in 1..=9 {
        let of_length: Vec<&[u8]> = listed
            .iter()
            .copied()
            .filter(|serial| serial.len() == length)
            .collect();
        let set = SerialSet::new(of_length.clone());
        assert_eq!((set.len(), set.bytes()), (7, 7 * length));
        for serial in &serials {
            assert_eq!(set.contains(serial), serial.len() == length, "{serial:x?}");
        }
        for near in [&[0x0f][..], &[0x11], &[0x71], &[0x70, 0x70, 0x71], &[]] {
            assert!(!set.contains(near), "{near:x?}");
        }
    }
    let all = SerialSet::new(listed.clone());
    assert_eq!(all.len(), 63);
    assert!(serials.iter().all(|serial| all.contains(serial)));
    assert_eq!(
        SerialSet::new([listed.clone(), listed].concat()).len(),
        63,
        "each once"
    );
}

#[test]
fn a_padded_serial_is_the_same_serial_and_an_empty_one_is_an_error() {
    let crl = valid(&[1], &[&[0, 5], &[0xff, 0x80], &[0, 0x80]]);
    for (serial, listed) in [
        (&[5][..], true),
        (&[0x80], true),
        (&[0, 0x80], true),
        (&[0, 5], false),
        (&[0xff, 0x80], false),
    ] {
        assert_eq!(
            crl.serials.contains(serial),
            listed,
            "in its shortest form only: {serial:x?}"
        );
    }
    assert_eq!(crl.serials.len(), 3);
    let empty = with(&number(&[1]), &entry(&[], &[])).err();
    assert_eq!(empty, Some(CrlError::Der(DerError::Value)));
    let trailing = tlv(0x30, &[&[0x02, 1, 5], FROM, b"\x05\x00"]);
    assert_eq!(
        with(&number(&[1]), &trailing).err(),
        Some(CrlError::Der(DerError::Trailing))
    );
}

#[test]
fn the_serials_are_listed_by_length_and_value() {
    let set = |serials: &[&[u8]]| valid(&[1], serials).serials;
    let (three, two) = (set(&[&[5], &[6], &[1, 0]]), set(&[&[5], &[1, 0]]));
    let listed: Vec<_> = three.iter().collect();
    assert_eq!(listed, [&[5][..], &[6], &[1, 0]]);
    assert_eq!((two.len(), SerialSet::default().iter().count()), (2, 0));
    assert_eq!((three.bytes(), SerialSet::default().bytes()), (4, 0));
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}
