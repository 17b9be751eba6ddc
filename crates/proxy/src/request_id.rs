//! The id of a request. It is in the access record, in the request to the member and in the response to the client.

use std::fmt::{self, Write};

use http::{HeaderName, HeaderValue};

/// The value of `X-Request-Id`: 32 hexadecimal digits.
#[derive(Clone, Debug)]
pub(crate) struct RequestId([u8; 32]);

impl RequestId {
    /// The header that carries the id to members and clients.
    pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    pub(crate) fn new(high: u64, low: u64) -> Self {
        let mut digits = [0_u8; 32];
        let quarters = [high >> 32, high, low >> 32, low];
        for (eight, quarter) in digits.as_chunks_mut().0.iter_mut().zip(quarters) {
            *eight = hex_digits(quarter as u32);
        }
        Self(digits)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).expect("hexadecimal digits")
    }
}

/// Eight hexadecimal digits, the most significant first. All digits are computed at once, because one at a time would cost as
/// much as the rest of an id.
fn hex_digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Spreads the number, with four bits in each byte.
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte that becomes a letter: 10 or more reaches 16 when 6 is added.
    let letters = (spread + 6 * EACH) >> 4 & EACH;
    let digits = spread + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'0' - 10);
    digits.to_be_bytes()
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|digit| f.write_char((*digit).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_both_numbers_in_hexadecimal() {
        for (high, low) in [
            (0, 0),
            (1, 2),
            (u64::MAX, 0x0123_4567_89ab_cdef),
            (0xa09f << 40, 0xf0),
        ] {
            let id = RequestId::new(high, low).to_string();
            assert_eq!(id, format!("{high:016x}{low:016x}"));
        }
    }
}
