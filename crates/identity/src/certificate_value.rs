//! A certificate as a header value, in the encodings that Puppet's servers read.

use std::sync::OnceLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::CertFormat;

/// The header values of one certificate. Each value is computed when a request first needs it, because most pools need none.
/// All connections of the agent then share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateValues {
    escaped: OnceLock<Option<HeaderValue>>,
    one_line: OnceLock<Option<HeaderValue>>,
}

impl CertificateValues {
    /// The value in `format`. The certificate must be the same on each call. `None` if `der` is empty.
    pub(crate) fn of(&self, der: &[u8], format: CertFormat) -> Option<&HeaderValue> {
        let value = match format {
            CertFormat::Escaped => self.escaped.get_or_init(|| escaped(der)),
            CertFormat::OneLine => self.one_line.get_or_init(|| one_line(der)),
        };
        value.as_ref()
    }
}

/// The encoding of Puppet Server: PEM, percent-escaped except for unreserved characters.
fn escaped(der: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(escaped_text(der)?).ok()
}

pub(crate) fn escaped_text(der: &[u8]) -> Option<String> {
    let text = || percent_encode(pem(der).as_bytes(), ESCAPED).collect();
    (!der.is_empty()).then(text)
}

/// The encoding that Rack of Puppet 4.6 to 5 accepts: PEM with a space for each newline except the last.
fn one_line(der: &[u8]) -> Option<HeaderValue> {
    if der.is_empty() {
        return None;
    }
    HeaderValue::try_from(pem(der).trim_end().replace('\n', " ")).ok()
}

fn pem(der: &[u8]) -> String {
    let lines = der.chunks(BYTES_A_LINE);
    let lines: String = lines.map(|line| STANDARD.encode(line) + "\n").collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}

/// Bytes of DER in a PEM line of 64 characters.
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
    fn a_line_of_pem_has_at_most_64_columns() {
        for (length, lines) in [
            (1, "AA=="),
            (48, &"A".repeat(64)),
            (49, &("A".repeat(64) + "\nAA==")),
        ] {
            let expected =
                format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n");
            assert_eq!(pem(&vec![0; length]), expected);
        }
    }

    #[test]
    fn any_bytes_can_be_unescaped_again() {
        for length in 1..200 {
            let der: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(151)).collect();
            let value = escaped(&der).expect("a value");
            let undone: Vec<u8> = percent_encoding::percent_decode(value.as_bytes()).collect();
            assert_eq!(undone, pem(&der).into_bytes());
        }
    }

    #[test]
    fn an_empty_certificate_has_no_header_value() {
        assert_eq!(escaped(&[]), None);
        assert_eq!(one_line(&[]), None);
    }
}
