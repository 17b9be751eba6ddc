//! The Huffman code of HPACK (RFC 7541, appendix B). It is decoded only as far as necessary to find one character, and to read
//! the characters of URLs.

/// Bits of a string that do not form a complete character yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Huffman {
    bits: u64,
    count: u32,
}

/// How many characters have a code of each length. Codes of one length are consecutive, and greater than all shorter codes.
const LENGTHS: [(u32, u32); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];
const LONGEST: u32 = 30;

/// The characters with the shortest codes, in the order of the codes: all printable ASCII characters, and NUL.
const CHARACTERS: &[u8] = b"012aceiost %-./3456789=A_bdfghlmnpru:BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz&*,;XZ!\"()?'+|#>\0$@[]~^}<`{\\";

/// The code of `#`.
const NUMBER_SIGN: (u64, u32) = (0xffa, 12);

/// For each length, the lowest code that is longer, aligned to the longest length.
const BOUNDS: [(u32, u64); LENGTHS.len()] = {
    let mut bounds = [(0, 0); LENGTHS.len()];
    let (mut at, mut next) = (0, 0);
    while at < LENGTHS.len() {
        let (length, characters) = LENGTHS[at];
        next += (characters as u64) << (LONGEST - length);
        bounds[at] = (length, next);
        at += 1;
    }
    bounds
};

impl Huffman {
    /// Reads the next byte. Returns whether a `#` ends in it.
    pub(crate) fn read(&mut self, byte: u8) -> bool {
        // At most 29 bits are left from earlier bytes.
        self.bits = self.bits << 8 | u64::from(byte);
        self.count += 8;
        let mut found = false;
        while let Some(length) = self.length() {
            let left = self.count - length;
            found |= (self.bits >> left, length) == NUMBER_SIGN;
            self.bits &= (1 << left) - 1;
            self.count = left;
        }
        found
    }

    /// Decodes a string of printable ASCII. `None`: the string has other characters, or is invalid.
    pub(crate) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
        let mut this = Self::default();
        let mut text = Vec::with_capacity(coded.len() * 2);
        for byte in coded {
            this.bits = this.bits << 8 | u64::from(*byte);
            this.count += 8;
            while let Some(length) = this.length() {
                let left = this.count - length;
                text.push(character(this.bits >> left, length)?);
                this.bits &= (1 << left) - 1;
                this.count = left;
            }
        }
        // The padding must have fewer than eight bits, all of them ones.
        (this.count < 8 && this.bits == (1 << this.count) - 1).then_some(text)
    }

    /// The length of the first character's code, if all of its bits have arrived.
    fn length(&self) -> Option<u32> {
        let first = match self.count {
            ..LONGEST => self.bits << (LONGEST - self.count),
            count => self.bits >> (count - LONGEST),
        };
        let (length, _) = BOUNDS.into_iter().find(|(_, bound)| first < *bound)?;
        (length <= self.count).then_some(length)
    }
}

/// The character with this code. `None`: it is not among [`CHARACTERS`].
fn character(code: u64, length: u32) -> Option<u8> {
    let (mut shorter, mut first) = (0, 0);
    for ((bits, characters), (_, bound)) in LENGTHS.into_iter().zip(BOUNDS) {
        if bits == length {
            let position = shorter + (code - (first >> (LONGEST - length)));
            return CHARACTERS.get(usize::try_from(position).ok()?).copied();
        }
        shorter += u64::from(characters);
        first = bound;
    }
    None
}

/// For tests: encodes printable ASCII in this code.
#[cfg(test)]
pub(crate) fn coded(text: &[u8]) -> Vec<u8> {
    let mut bits = String::new();
    for character in text {
        let mut at = CHARACTERS.iter().position(|known| known == character);
        let (mut first, mut codes) = (0, LENGTHS.into_iter().zip(BOUNDS));
        while let (Some(left), Some(((length, count), (_, bound)))) = (at, codes.next()) {
            at = left.checked_sub(count as usize);
            if at.is_none() {
                let code = (first >> (LONGEST - length)) + left as u64;
                bits += &format!("{code:0width$b}", width = length as usize);
            }
            first = bound;
        }
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    let bytes = bits.as_bytes().chunks(8);
    let byte = |bits: &[u8]| bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
    bytes.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_the_rfc_are_decoded() {
        // RFC 7541, C.4.
        let host: &[u8] = &[
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        let key: &[u8] = &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f];
        for (bytes, expected) in [
            (host, Some("www.example.com")),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], Some("no-cache")),
            (key, Some("custom-key")),
            (&[], Some("")),
            // A whole byte of padding, padding with a zero, and LF.
            (&[0xff], None),
            (&[0xfe], None),
            (&[0xff, 0xff, 0xff, 0xf3], None),
        ] {
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(Huffman::decode(bytes), expected, "{bytes:x?}");
            if let Some(text) = expected {
                assert_eq!(coded(&text), bytes);
            }
        }
        let printable: Vec<u8> = std::iter::once(0).chain(b' '..=b'~').collect();
        assert_eq!(Huffman::decode(&coded(&printable)), Some(printable));
    }

    #[test]
    fn the_codes_use_the_whole_code_space() {
        assert_eq!(BOUNDS[BOUNDS.len() - 1], (LONGEST, 1 << LONGEST));
        let characters: u32 = LENGTHS.iter().map(|(_, characters)| characters).sum();
        assert_eq!(characters, 257);
    }

    #[test]
    fn a_number_sign_is_found_behind_codes_of_any_length() {
        // RFC 7541, C.4.1 and C.6.1, and the longest code of a byte, LF.
        let (host, date): (&[u8], &[u8]) = (
            &[
                0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
            ],
            &[
                0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b,
                0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
            ],
        );
        for (bytes, expected) in [
            (host, false),
            (date, false),
            (&[0xff, 0xa0], true),
            (&[0xff, 0xb0], false),
            // `0#`, `a/#`, then `0>`.
            (&[0x07, 0xfd, 0x7f], true),
            (&[0x1b, 0x1f, 0xf5, 0xff], true),
            (&[0x07, 0xfd, 0xff], false),
            // LF, then `#`.
            (&[0xff, 0xff, 0xff, 0xf3, 0xfe, 0x8f], true),
            (&[0xff; 64], false),
        ] {
            let mut huffman = Huffman::default();
            let found = bytes
                .iter()
                .fold(false, |found, byte| huffman.read(*byte) | found);
            assert_eq!(found, expected, "{bytes:x?}");
        }
    }
}
