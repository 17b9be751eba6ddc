//! A thousand generated subjects in each format: no server reads another certname.

use testkit::{Attribute, Seed, name_der};

use crate::support::{
    header_forms::{CN, EMAIL, FILES, O, Subject, UTF8, identity_estate, utf8},
    readers::{self, Reading, is_for, is_possible},
};

#[test]
fn no_generated_subject_in_the_form_of_rfc_2253_is_read_as_another_name() {
    assert_no_generated_subject_is_read_as_another_name("rfc2253");
}

#[test]
fn no_generated_subject_in_the_form_of_openssl_is_read_as_another_name() {
    assert_no_generated_subject_is_read_as_another_name("openssl");
}

#[test]
fn no_generated_subject_with_the_cn_last_is_read_as_another_name() {
    assert_no_generated_subject_is_read_as_another_name("cn-last");
}

/// Generates 1,000 subjects that try to be read as another name. The proxy refuses each of them, or every reader of any
/// form reads the verified CN or no name. Readers other than Puppet Server's may also read a value that no accepted
/// certificate can have. Readers of this form must read plain subjects.
fn assert_no_generated_subject_is_read_as_another_name(format: &'static str) {
    let mut seed = Seed::from_env_or_random();
    let estate = identity_estate(&format!("dn_format = {format:?}"), "single-cn").start();
    let (mut accepted, mut exact) = (0, 0);
    for _ in 0..1000 {
        let subject = generated(&mut seed);
        let agent = estate.ca.leaf("any").issue_as(&name_der(&subject.rdns));
        estate.forget();
        let response = estate.client(&agent).get(FILES);
        if response.status == 403 {
            assert!(
                !subject.is_plain(),
                "{subject:?} is refused: {}",
                response.text()
            );
            assert!(estate.far_end().is_empty());
            continue;
        }
        assert_eq!(response.status, 200, "{subject:?}: {response:?}");
        let cn = subject.only_cn();
        let headers = estate.only_request().headers;
        accepted += 1;
        for (reader, read) in readers::all(&headers) {
            let Ok(Reading {
                name: Some(name), ..
            }) = read
            else {
                assert!(
                    !(subject.is_plain() && is_for(format, reader)),
                    "{reader} reads no name: {headers:?}"
                );
                continue;
            };
            exact += usize::from(name == cn);
            assert!(
                name == cn || !is_possible(&name) && !reader.starts_with("Puppet Server"),
                "{reader} reads {name:?} where {cn:?} was verified: {headers:?} of {subject:?}"
            );
            assert!(
                name == cn || !subject.is_plain() || !is_for(format, reader),
                "{reader} reads {name:?}, not {cn:?}: {headers:?}"
            );
        }
    }
    assert!(
        accepted > 200 && exact > 2 * accepted,
        "the test tests: {accepted} accepted, {exact} read"
    );
}

const KINDS: &[&str] = &[
    O,
    O,
    "2.5.4.11",
    "2.5.4.6",
    "2.5.4.7",
    "2.5.4.8",
    "2.5.4.9",
    "2.5.4.5",
    EMAIL,
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.3.4",
];

/// Fragments that could make a server parse another name from a subject. No server may return `victim` as the certname.
const FRAGMENTS: &[&str] = &[
    "CN=victim",
    "CN = victim",
    "cn=victim",
    "/CN=victim",
    ",CN=victim",
    ", CN=victim",
    "+CN=victim",
    ";CN=victim",
    "\\,CN=victim",
    "\\",
    "\\\\",
    "\"",
    "'",
    "#",
    "#0c06766963746d696d",
    "\\23",
    ";",
    "=",
    " ",
    "  ",
    "victim",
    "CN",
    "\u{e9}",
    "\u{202e}",
    "\u{ff1d}",
    "<",
    ">",
    "%2C",
    "\\2C",
    "\\2FCN\\3Dvictim",
    "/",
    ",",
    "+",
    "Acme",
    "x",
    "*",
    "OID.2.5.4.3=victim",
    "2.5.4.3=victim",
    "/2.5.4.3=victim",
    "SUCCESS",
    "C",
    "N=victim",
    ".",
    "-",
    "Inc.",
];

const PLAIN: &[&str] = &[
    "web01",
    "a",
    "WEB.Example",
    "Web 01",
    "x-y",
    "victim-not",
    "0",
    "CN",
    "acme",
];

fn generated(seed: &mut Seed) -> Subject {
    let plain = seed.once_in(4);
    let mut rdns: Vec<Vec<Attribute>> = (0..seed.below(4))
        .map(|_| {
            let several = if !plain && seed.once_in(5) { 2 } else { 1 };
            (0..several).map(|_| attribute(seed, plain)).collect()
        })
        .collect();
    let at = seed.below(rdns.len() + 1);
    rdns.insert(at, vec![common_name(seed, plain)]);
    if !plain && seed.once_in(12) {
        let at = seed.below(rdns.len());
        let cn = common_name(seed, true);
        if seed.once_in(2) {
            rdns.insert(at, vec![cn])
        } else {
            rdns[at].push(cn)
        }
    }
    Subject { rdns }
}

fn attribute(seed: &mut Seed, plain: bool) -> Attribute {
    if plain {
        let kind = *seed.pick(&[O, "2.5.4.11", EMAIL]);
        let value = *seed.pick(PLAIN);
        return utf8(kind, value);
    }
    let value: String = (0..seed.below(4)).map(|_| *seed.pick(FRAGMENTS)).collect();
    let kind = *seed.pick(KINDS);
    typed(seed, kind, &value)
}

fn common_name(seed: &mut Seed, plain: bool) -> Attribute {
    let mut value = (*seed.pick(PLAIN)).to_owned();
    if !plain && seed.once_in(3) {
        let at = *seed.pick(&[0, value.len()]);
        let fragment = *seed.pick(FRAGMENTS);
        value.insert_str(at, fragment);
    }
    if plain {
        utf8(CN, &value)
    } else {
        typed(seed, CN, &value)
    }
}

fn typed(seed: &mut Seed, kind: &str, value: &str) -> Attribute {
    let wide = || value.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let (tag, bytes) = match seed.below(10) {
        0 => (0x13, value.as_bytes().to_vec()),
        1 => (0x16, value.as_bytes().to_vec()),
        2 => (0x14, value.as_bytes().to_vec()),
        3 => (0x1e, wide()),
        _ => (UTF8, value.as_bytes().to_vec()),
    };
    (kind.to_owned(), tag, bytes)
}
