//! Header compression (RFC 7541). Decoding is complete; encoding is literal, byte for byte as a test writes it.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
};

/// Maximum bytes of the decoder's table: the protocol's default.
const TABLE_BYTES_MAX: usize = 4096;

/// A field as bytes.
pub(crate) type RawField = (Vec<u8>, Vec<u8>);

/// A header block without indexing.
pub(crate) fn encode<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            integer(text.len(), 7, 0, &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

fn integer(number: usize, bits: u8, first: u8, into: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if number < most {
        return into.push(first | number as u8);
    }
    into.push(first | most as u8);
    let mut rest = number - most;
    while rest >= 128 {
        into.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    into.push(rest as u8);
}

/// Decodes the blocks of one connection, in order.
#[derive(Default)]
pub(crate) struct Decoder {
    table: VecDeque<RawField>,
}

impl Decoder {
    /// The fields of a whole block.
    pub(crate) fn decode(&mut self, block: &[u8]) -> io::Result<Vec<RawField>> {
        let mut fields = Vec::new();
        let mut rest = block;
        while let Some(first) = rest.first().copied() {
            if first & 0x80 != 0 {
                let index = take_integer(&mut rest, 7)?;
                fields.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                let size = take_integer(&mut rest, 5)?;
                self.shrink(size.min(TABLE_BYTES_MAX));
            } else {
                let remembered = first & 0x40 != 0;
                let index = take_integer(&mut rest, if remembered { 6 } else { 4 })?;
                let name = match index {
                    0 => take_text(&mut rest)?,
                    index => self.entry(index)?.0,
                };
                let field = (name, take_text(&mut rest)?);
                if remembered {
                    self.table.push_front(field.clone());
                    self.shrink(TABLE_BYTES_MAX);
                }
                fields.push(field);
            }
        }
        Ok(fields)
    }

    fn entry(&self, index: usize) -> io::Result<RawField> {
        let own = index.checked_sub(STATIC.len() + 1);
        match own {
            Some(own) => self.table.get(own).cloned(),
            None => index.checked_sub(1).map(|index| {
                let (name, value) = STATIC[index];
                (name.into(), value.into())
            }),
        }
        .ok_or_else(|| invalid("an index that is not in the table"))
    }

    fn shrink(&mut self, limit: usize) {
        let size = |(name, value): &RawField| name.len() + value.len() + 32;
        while self.table.iter().map(size).sum::<usize>() > limit {
            self.table.pop_back();
        }
    }
}

fn take(rest: &mut &[u8], length: usize) -> io::Result<Vec<u8>> {
    let (taken, after) = rest
        .split_at_checked(length)
        .ok_or_else(|| invalid("a block that ends within a field"))?;
    *rest = after;
    Ok(taken.to_vec())
}

fn take_integer(rest: &mut &[u8], bits: u8) -> io::Result<usize> {
    let most = (1 << bits) - 1;
    let mut number = usize::from(take(rest, 1)?[0] & most as u8);
    if number < most {
        return Ok(number);
    }
    for shift in (0..28).step_by(7) {
        let byte = take(rest, 1)?[0];
        number += usize::from(byte & 127) << shift;
        if byte < 128 {
            return Ok(number);
        }
    }
    Err(invalid("an integer without an end"))
}

fn take_text(rest: &mut &[u8]) -> io::Result<Vec<u8>> {
    let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = take_integer(rest, 7)?;
    let text = take(rest, length)?;
    if coded { unpack(&text) } else { Ok(text) }
}

/// Huffman code; the codes of one length are consecutive numbers.
fn unpack(coded: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let (mut code, mut bits) = (0_u32, 0);
    for bit in coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1))
    {
        (code, bits) = (code << 1 | u32::from(bit), bits + 1);
        let found = HUFFMAN
            .iter()
            .find(|(length, first, _)| *length == bits && code >= *first)
            .and_then(|(_, first, letters)| letters.get((code - first) as usize));
        if let Some(letter) = found {
            text.push(*letter);
            (code, bits) = (0, 0);
        }
        if bits > 30 {
            return Err(invalid("no such code"));
        }
    }
    // What remains is padding: the beginning of a code, all ones.
    match bits < 8 && code + 1 == 1 << bits {
        true => Ok(text),
        false => Err(invalid("padding that is none")),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("header block: {what}"))
}

/// RFC 7541, appendix B: length, first code, and the symbols of that length.
const HUFFMAN: &[(u32, u32, &[u8])] = &[
    (5, 0x0, &[48, 49, 50, 97, 99, 101, 105, 111, 115, 116]),
    (
        6,
        0x14,
        &[
            32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95, 98, 100, 102, 103, 104,
            108, 109, 110, 112, 114, 117,
        ],
    ),
    (
        7,
        0x5c,
        &[
            58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86,
            87, 89, 106, 107, 113, 118, 119, 120, 121, 122,
        ],
    ),
    (8, 0xf8, &[38, 42, 44, 59, 88, 90]),
    (10, 0x3f8, &[33, 34, 40, 41, 63]),
    (11, 0x7fa, &[39, 43, 124]),
    (12, 0xffa, &[35, 62]),
    (13, 0x1ff8, &[0, 36, 64, 91, 93, 126]),
    (14, 0x3ffc, &[94, 125]),
    (15, 0x7ffc, &[60, 96, 123]),
    (19, 0x7fff0, &[92, 195, 208]),
    (20, 0xfffe6, &[128, 130, 131, 162, 184, 194, 224, 226]),
    (
        21,
        0x1fffdc,
        &[
            153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230,
        ],
    ),
    (
        22,
        0x3fffd2,
        &[
            129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185,
            186, 187, 189, 190, 196, 198, 228, 232, 233,
        ],
    ),
    (
        23,
        0x7fffd8,
        &[
            1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166,
            168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239,
        ],
    ),
    (
        24,
        0xffffea,
        &[9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237],
    ),
    (25, 0x1ffffec, &[199, 207, 234, 235]),
    (
        26,
        0x3ffffe0,
        &[
            192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255,
        ],
    ),
    (
        27,
        0x7ffffde,
        &[
            203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252,
            253, 254,
        ],
    ),
    (
        28,
        0xfffffe2,
        &[
            2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28,
            29, 30, 31, 127, 220, 249,
        ],
    ),
    (30, 0x3ffffffc, &[10, 13, 22]),
];

/// RFC 7541, appendix A.
const STATIC: &[(&str, &str)] = &[
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("hex")
        };
        digits.chunks(2).map(pair).collect()
    }

    /// RFC 7541, C.6.1 and C.6.2: two responses with Huffman codes on one connection.
    #[test]
    fn the_blocks_of_the_rfc_read_as_it_says() {
        let mut decoder = Decoder::default();
        let first = bytes(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        );
        let fields = decoder.decode(&first).expect("a block");
        assert_eq!(fields[0], (b":status".to_vec(), b"302".to_vec()));
        assert_eq!(fields[3].1, b"https://www.example.com");
        let second = decoder
            .decode(&bytes("4883 640e ffc1 c0bf"))
            .expect("a block");
        assert_eq!(second[0].1, b"307");
        assert_eq!(second[2], fields[2]);
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let long = "v".repeat(300);
        let fields = [(":path", "/x"), ("X-Upper", long.as_str())];
        let read = Decoder::default()
            .decode(&encode(&fields))
            .expect("a block");
        assert_eq!(read[1], (b"X-Upper".to_vec(), long.into_bytes()));
    }
}
