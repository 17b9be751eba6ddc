//! Object identifiers as strings.

use x509_parser::asn1_rs::Oid;

/// An OID in dotted form. `None` unless the content is an OID in its shortest encoding. With another encoding, readers that
/// compare bytes would miss the OID.
#[must_use]
pub fn dotted_oid(content: &[u8]) -> Option<String> {
    if content.is_empty() || content.len() > OID_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    let mut arc: u128 = 0;
    let mut begins = true;
    for byte in content {
        if begins && *byte == 0x80 {
            return None;
        }
        arc = arc.checked_mul(128)? | u128::from(byte & 0x7f);
        begins = byte & 0x80 == 0;
        if begins {
            // The first two arcs are encoded as one number. The first arc is at most 2. The second is below 40 if the first is
            // 0 or 1.
            if text.is_empty() {
                let first = (arc / 40).min(2);
                text = format!("{first}.{}", arc - first * 40);
            } else {
                text.push_str(&format!(".{arc}"));
            }
            arc = 0;
        }
    }
    begins.then_some(text)
}

/// Like [`dotted_oid`]. For a malformed OID, returns the string that a tolerant reader would produce from it.
pub(crate) fn in_dots(oid: &Oid<'_>) -> String {
    dotted_oid(oid.as_bytes()).unwrap_or_else(|| oid.to_id_string())
}

/// Maximum bytes of an OID. No registered OID is longer.
const OID_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::dotted_oid;

    #[test]
    fn only_the_shortest_encoding_of_an_oid_is_accepted() {
        for (content, expected) in [
            (&[0x55, 4, 3][..], Some("2.5.4.3")),
            (
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d],
                Some("1.2.840.113549"),
            ),
            (&[0x88, 0x37, 1], Some("2.999.1")),
            (&[0x78], Some("2.40")),
            (&[0x27, 1], Some("0.39.1")),
            (&[0], Some("0.0")),
            (&[], None),
            (&[0x55, 4, 0x80, 3], None),
            (&[0x55, 4, 0x83], None),
            (&[0x80, 0x55, 4, 3], None),
            (&[0xff; 128], None),
            (&[1; 129], None),
        ] {
            assert_eq!(dotted_oid(content).as_deref(), expected, "{content:02x?}");
        }
        let longest = dotted_oid(&[1; 128]).expect("no longer than any");
        assert_eq!(longest, format!("0{}", ".1".repeat(128)));
    }
}
