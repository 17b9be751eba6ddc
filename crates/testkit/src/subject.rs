//! Subjects that no library writes, with any RDNs and string types, in a certificate that is signed again.

/// An attribute: the dotted type, the tag of its string type, and the bytes of its value.
pub type Attribute = (String, u8, Vec<u8>);

/// The DER of a Name with these RDNs in this order.
pub fn name_der(rdns: &[Vec<Attribute>]) -> Vec<u8> {
    let set = |rdn: &Vec<Attribute>| {
        let attributes = rdn
            .iter()
            .flat_map(|(kind, tag, value)| tlv(0x30, &[oid(kind), tlv(*tag, value)].concat()));
        tlv(0x31, &attributes.collect::<Vec<u8>>())
    };
    tlv(0x30, &rdns.iter().flat_map(set).collect::<Vec<u8>>())
}

/// Returns the certificate with another subject, signed again.
pub(crate) fn with_subject(
    certificate: &[u8],
    name: &[u8],
    sign: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let whole = elements(content(certificate));
    let mut fields = elements(content(whole[0]));
    // version, serial, algorithm, issuer, validity, subject (RFC 5280 §4.1)
    fields[5] = name;
    let signed = tlv(0x30, &fields.concat());
    let signature = [&[0][..], &sign(&signed)].concat();
    tlv(0x30, &[&signed, whole[1], &tlv(0x03, &signature)].concat())
}

/// The consecutive DER elements in `bytes`, each complete.
fn elements(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (header, length) = header(bytes);
        let (element, rest) = bytes.split_at(header + length);
        found.push(element);
        bytes = rest;
    }
    found
}

fn content(element: &[u8]) -> &[u8] {
    &element[header(element).0..]
}

/// The length of the tag and the length field, and the length of the content.
fn header(element: &[u8]) -> (usize, usize) {
    match element[1] {
        short @ ..0x80 => (2, usize::from(short)),
        long => {
            let digits = usize::from(long & 0x7f);
            let number = element[2..2 + digits].iter();
            (
                2 + digits,
                number.fold(0, |n, byte| n << 8 | usize::from(*byte)),
            )
        }
    }
}

fn oid(dotted: &str) -> Vec<u8> {
    let arcs: Vec<u64> = dotted
        .split('.')
        .map(|arc| arc.parse().expect("a type in a test is dotted"))
        .collect();
    let first = u8::try_from(arcs[0] * 40 + arcs[1]).expect("a type in a test is an ordinary one");
    let mut out = vec![first];
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

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ ..0x80 => out.push(short as u8),
        longer @ ..0x100 => out.extend([0x81, longer as u8]),
        long => {
            let length = u16::try_from(long).expect("a certificate in a test is short");
            out.push(0x82);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend_from_slice(content);
    out
}
