//! Certificates for tests, with any subject and any extension. The signature consists of zeros, because no test verifies it.

pub(crate) use crate::subject::element as tlv;

pub(crate) const UTF8: u8 = 0x0c;
pub(crate) const PRINTABLE: u8 = 0x13;
pub(crate) const T61: u8 = 0x14;
pub(crate) const IA5: u8 = 0x16;
pub(crate) const UNIVERSAL: u8 = 0x1c;
pub(crate) const BMP: u8 = 0x1e;

pub(crate) const CN: &str = "2.5.4.3";
pub(crate) const O: &str = "2.5.4.10";
pub(crate) const C: &str = "2.5.4.6";

/// An attribute: type, string tag, bytes.
pub(crate) type Ava<'a> = (&'a str, u8, &'a [u8]);

/// A certificate with these RDNs as its subject.
pub(crate) fn with_subject(rdns: &[&[Ava<'_>]]) -> Vec<u8> {
    certificate(rdns, &[])
}

/// A certificate like those of the Puppet CA.
pub(crate) fn puppet(certname: &str) -> Vec<u8> {
    with_subject(&[&[(CN, UTF8, certname.as_bytes())]])
}

pub(crate) fn certificate(rdns: &[&[Ava<'_>]], extensions: &[(&str, &[u8])]) -> Vec<u8> {
    let listed = extensions
        .iter()
        .flat_map(|(name, value)| tlv(0x30, &[oid(name), tlv(0x04, value)].concat()));
    made(&name(rdns), &listed.collect::<Vec<u8>>())
}

/// A certificate like those of the Puppet CA with this extension, given as a complete DER element.
pub(crate) fn with_extension(extension: &[u8]) -> Vec<u8> {
    made(&name(&[&[(CN, UTF8, b"web01")]]), extension)
}

/// A certificate with this subject, given as the DER of a complete Name.
pub(crate) fn with_name(subject: &[u8]) -> Vec<u8> {
    made(subject, &[])
}

fn made(subject: &[u8], extensions: &[u8]) -> Vec<u8> {
    let algorithm = tlv(0x30, &oid("1.2.840.10045.4.3.2"));
    let validity = tlv(
        0x30,
        &[tlv(0x17, b"250101000000Z"), tlv(0x17, b"300101000000Z")].concat(),
    );
    let key = tlv(
        0x30,
        &[tlv(0x30, &oid("1.3.101.112")), tlv(0x03, &[0; 33])].concat(),
    );
    let mut to_be_signed = [
        tlv(0xa0, &tlv(0x02, &[2])),
        tlv(0x02, &[0x00, 0x9a, 0x05]),
        algorithm.clone(),
        name(&[&[(CN, UTF8, b"Puppet CA: test")]]),
        validity,
        subject.to_vec(),
        key,
    ]
    .concat();
    if !extensions.is_empty() {
        to_be_signed.extend(tlv(0xa3, &tlv(0x30, extensions)));
    }
    tlv(
        0x30,
        &[tlv(0x30, &to_be_signed), algorithm, tlv(0x03, &[0; 65])].concat(),
    )
}

fn name(rdns: &[&[Ava<'_>]]) -> Vec<u8> {
    let set = |rdn: &&[Ava<'_>]| {
        let attributes = rdn
            .iter()
            .flat_map(|(kind, tag, value)| tlv(0x30, &[oid(kind), tlv(*tag, value)].concat()));
        tlv(0x31, &attributes.collect::<Vec<u8>>())
    };
    tlv(0x30, &rdns.iter().flat_map(set).collect::<Vec<u8>>())
}

fn oid(dotted: &str) -> Vec<u8> {
    let arcs: Vec<u32> = dotted
        .split('.')
        .map(|arc| arc.parse().expect("a number"))
        .collect();
    let mut out = vec![(arcs[0] * 40 + arcs[1]) as u8];
    for arc in &arcs[2..] {
        let mut digits = vec![(arc & 0x7f) as u8];
        let mut rest = arc >> 7;
        while rest > 0 {
            digits.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        out.extend(digits.iter().rev());
    }
    tlv(0x06, &out)
}
