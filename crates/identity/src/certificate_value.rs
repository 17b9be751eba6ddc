//! A certificate as the value of a header, in the forms that Puppet's servers read.

use std::sync::OnceLock;

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::CertFormat;

/// The values of one certificate: each made when a request first needs it, for most pools need none, and then kept
/// for all connections of its agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateValues {
    escaped: OnceLock<Option<HeaderValue>>,
    one_line: OnceLock<Option<HeaderValue>>,
}

impl CertificateValues {
    /// That of the certificate, which has to be the same each time; none of no bytes.
    pub(crate) fn of(&self, der: &[u8], format: CertFormat) -> Option<&HeaderValue> {
        let value = match format {
            CertFormat::Escaped => self.escaped.get_or_init(|| escaped(der)),
            CertFormat::OneLine => self.one_line.get_or_init(|| one_line(der)),
        };
        value.as_ref()
    }
}

/// The certificate as Puppet servers decode it: PEM, everything but unreserved characters percent-escaped.
fn escaped(der: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(escaped_text(der)?).ok()
}

pub(crate) fn escaped_text(der: &[u8]) -> Option<String> {
    let text = || percent_encode(pem(der).as_bytes(), ESCAPED).collect();
    (!der.is_empty()).then(text)
}

/// The certificate as Rack of Puppet 4.6 to 5 mends it: PEM with a blank for each newline but the last.
fn one_line(der: &[u8]) -> Option<HeaderValue> {
    if der.is_empty() {
        return None;
    }
    HeaderValue::try_from(pem(der).trim_end().replace('\n', " ")).ok()
}

fn pem(der: &[u8]) -> String {
    let mut out = String::with_capacity(der.len() * 3 / 2 + 64);
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(BYTES_A_LINE) {
        for group in line.chunks(3) {
            push_base64(&mut out, group);
        }
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

pub(crate) fn push_base64(out: &mut String, group: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for index in 0..4 {
        if index > group.len() {
            out.push('=');
        } else {
            out.push(char::from(
                ALPHABET[(bits >> (18 - 6 * index)) as usize & 63],
            ));
        }
    }
}

/// 48 bytes make the 64 columns of PEM.
const BYTES_A_LINE: usize = 48;

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_right_for_every_rest() {
        let cases = [
            (&b"f"[..], "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xef\xbe", "/+++"),
            (
                &[0; 47],
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            ),
            (
                &[0; 49],
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nAA==",
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(
                pem(bytes),
                format!("-----BEGIN CERTIFICATE-----\n{expected}\n-----END CERTIFICATE-----\n")
            );
        }
    }

    #[test]
    fn whatever_the_bytes_what_is_escaped_can_be_undone() {
        for length in 1..200 {
            let der: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(151)).collect();
            let value = escaped(&der).expect("a value");
            let undone: Vec<u8> = percent_encoding::percent_decode(value.as_bytes()).collect();
            assert_eq!(undone, pem(&der).into_bytes());
        }
    }

    #[test]
    fn a_certificate_is_told_or_left_out_never_empty() {
        assert_eq!(escaped(&[]), None);
        assert_eq!(one_line(&[]), None);
    }
}
