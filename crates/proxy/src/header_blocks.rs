//! The header blocks of one HTTP/2 connection (RFC 7541), read only as far as it takes to see which fields are
//! pseudo-header fields.
//!
//! Trailers must not have any (RFC 9113, 8.1). h2 refuses a pseudo-header field that comes after another field, but drops
//! one at the beginning of trailers without an error. So the first field of each block is what counts here.

/// Reads all header blocks of one connection, in order.
#[derive(Debug)]
pub(crate) struct HeaderBlocks {
    /// Which entries of the dynamic table are pseudo-header fields, the newest in the lowest bit. The table holds at most 128
    /// entries (4,096 bytes, 32 or more for each). Evicted entries stay here: h2 ends a connection that refers to one.
    pseudo_entries: u128,
    next: Next,
    /// The number that is being read, or the bytes that are left of a string.
    number: u32,
    shift: u32,
    /// The field becomes an entry of the dynamic table.
    inserts: bool,
    huffman: bool,
    /// `None`: the block has no field yet.
    first_is_pseudo: Option<bool>,
}

/// What the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first byte of a field, or of a new size of the table.
    Field,
    /// The first byte of the length of a string.
    Length(Number),
    /// A further byte of a number.
    More(Number),
    NameFirst,
    NameRest,
    Value,
}

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// The entry that is the whole field.
    Entry,
    /// The entry that has the name of the field; 0: the name follows.
    NameEntry,
    TableSize,
    NameLength,
    ValueLength,
}

/// Entries of the static table: the first 14 are pseudo-header fields.
const STATIC_PSEUDO: u32 = 14;
const STATIC: u32 = 61;
/// The Huffman code of a colon, in the upper seven bits of a byte.
const COLON_HUFFMAN: u8 = 0b101_1100;

impl HeaderBlocks {
    pub(crate) fn new() -> Self {
        Self {
            pseudo_entries: 0,
            next: Next::Field,
            number: 0,
            shift: 0,
            inserts: false,
            huffman: false,
            first_is_pseudo: None,
        }
    }

    /// A new block begins.
    pub(crate) fn begin(&mut self) {
        self.next = Next::Field;
        self.first_is_pseudo = None;
    }

    /// Whether the first field of the current block is a pseudo-header field.
    pub(crate) fn begins_with_pseudo(&self) -> bool {
        self.first_is_pseudo == Some(true)
    }

    /// Reads the next bytes of the current block. h2 reads the same bytes and ends the connection where they are invalid.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = match self.next {
                Next::NameRest => self.skip(bytes, Next::Length(Number::ValueLength)),
                Next::Value => self.skip(bytes, Next::Field),
                _ => {
                    self.byte(byte);
                    rest
                }
            }
        }
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], then: Next) -> &'a [u8] {
        let left = self.number as usize;
        let skipped = left.min(bytes.len());
        self.number = (left - skipped) as u32;
        if self.number == 0 {
            self.next = then;
        }
        &bytes[skipped..]
    }

    fn byte(&mut self, byte: u8) {
        match self.next {
            Next::Field => {
                self.inserts = byte & 0xc0 == 0x40;
                match byte {
                    0x80.. => self.number(byte, 7, Number::Entry),
                    0x40.. => self.number(byte, 6, Number::NameEntry),
                    0x20.. => self.number(byte, 5, Number::TableSize),
                    _ => self.number(byte, 4, Number::NameEntry),
                }
            }
            Next::Length(which) => {
                self.huffman = byte & 0x80 != 0;
                self.number(byte, 7, which);
            }
            Next::More(which) => {
                let more = u32::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
                self.number = self.number.saturating_add(more);
                self.shift += 7;
                if byte & 0x80 == 0 {
                    self.end_number(which);
                } else if self.shift > 28 {
                    // Longer than h2 reads: the connection ends.
                    self.next = Next::Field;
                }
            }
            Next::NameFirst => {
                self.named(match self.huffman {
                    true => byte >> 1 == COLON_HUFFMAN,
                    false => byte == b':',
                });
                self.number -= 1;
                self.next = match self.number {
                    0 => Next::Length(Number::ValueLength),
                    _ => Next::NameRest,
                };
            }
            Next::NameRest | Next::Value => {}
        }
    }

    /// Begins a number, in so many low bits of a byte.
    fn number(&mut self, byte: u8, bits: u32, which: Number) {
        let most = (1 << bits) - 1;
        self.number = u32::from(byte) & most;
        if self.number == most {
            self.shift = 0;
            self.next = Next::More(which);
        } else {
            self.end_number(which);
        }
    }

    fn end_number(&mut self, which: Number) {
        self.next = match which {
            Number::Entry => {
                self.named(self.is_pseudo(self.number));
                Next::Field
            }
            Number::NameEntry if self.number == 0 => Next::Length(Number::NameLength),
            Number::NameEntry => {
                self.named(self.is_pseudo(self.number));
                Next::Length(Number::ValueLength)
            }
            Number::TableSize => Next::Field,
            Number::NameLength if self.number == 0 => {
                self.named(false);
                Next::Length(Number::ValueLength)
            }
            Number::NameLength => Next::NameFirst,
            Number::ValueLength if self.number == 0 => Next::Field,
            Number::ValueLength => Next::Value,
        };
    }

    fn is_pseudo(&self, entry: u32) -> bool {
        match entry {
            1..=STATIC_PSEUDO => true,
            0..=STATIC => false,
            _ => {
                let newest_first = self.pseudo_entries.checked_shr(entry - STATIC - 1);
                newest_first.unwrap_or(0) & 1 == 1
            }
        }
    }

    /// Notes the name of a field.
    fn named(&mut self, pseudo: bool) {
        self.first_is_pseudo.get_or_insert(pseudo);
        if self.inserts {
            self.pseudo_entries = self.pseudo_entries << 1 | u128::from(pseudo);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last of these blocks begins with a pseudo-header field, however they are cut.
    #[track_caller]
    fn check(blocks: &[&[u8]], expected: bool) {
        for piece in 1..=64 {
            let mut read = HeaderBlocks::new();
            for block in blocks {
                read.begin();
                block.chunks(piece).for_each(|bytes| read.read(bytes));
            }
            let found = read.begins_with_pseudo();
            assert_eq!(found, expected, "{blocks:x?} in pieces of {piece}");
        }
    }

    #[test]
    fn the_first_field_decides_in_every_representation() {
        check(&[b""], false);
        // From the static table: `:method: GET`, `:status: 500`, `accept-charset`, `www-authenticate`.
        check(&[&[0x82]], true);
        check(&[&[0x8e]], true);
        check(&[&[0x8f]], false);
        check(&[&[0xbd]], false);
        // Literals with a name of the static table: `:path`, then `accept-charset` and a longer index.
        check(&[&[0x04, 1, b'/']], true);
        check(&[&[0x14, 1, b'/']], true);
        check(&[&[0x44, 1, b'/']], true);
        check(&[&[0x0f, 0, 1, b'x']], false);
        check(&[&[0x4f, 1, b'x']], false);
        // Literals with their names, plain and by Huffman's code (`:path`, `x`).
        check(&[b"\x00\x05:path\x01/"], true);
        check(&[b"\x40\x05:path\x01/"], true);
        check(&[b"\x10\x01x\x01/"], false);
        check(&[&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 1, b'/']], true);
        check(&[&[0x00, 0x81, 0xf3, 1, b'/']], false);
        // A new size of the table is not a field, and later fields do not count.
        check(&[&[0x20, 0x3f, 0xe1, 0x1f, 0x82]], true);
        check(&[&[0x3f, 0xe1, 0x1f, 0x8f, 0x82]], false);
        check(&[b"\x00\x01x\x00\x82"], false);
    }

    #[test]
    fn entries_of_the_dynamic_table_are_followed() {
        // `:path` and then `x` are inserted: 62 is `x`, 63 is `:path`, and so are names taken from them.
        let inserted: &[u8] = b"\x44\x01/\x40\x01x\x01y";
        check(&[inserted, &[0xbe]], false);
        check(&[inserted, &[0xbf]], true);
        check(&[inserted, &[0x7f, 0, 1, b'z']], true);
        check(&[inserted, &[0x0f, 48, 1, b'z']], true);
        check(&[inserted, &[0x0f, 47, 1, b'z']], false);
        check(&[inserted, &[0x7f, 0, 1, b'z'], &[0xbe]], true);
        // Literals that are not inserted, and values of any length, move nothing.
        let long = [&[0x00, 1, b'x', 0x7f, 0x80, 0x01][..], &[b':'; 255]].concat();
        check(&[inserted, &long, &[0xbf]], true);
        check(&[inserted, &long, &[0xbe]], false);
        // What is not in the table.
        check(&[inserted, &[0xff, 0xff, 0xff, 0xff, 0x0f]], false);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut read = HeaderBlocks::new();
            let bytes: Vec<u8> = (0..48)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    // Often all ones, where numbers go on.
                    if state >> 62 == 0 {
                        0xff
                    } else {
                        (state >> 33) as u8
                    }
                })
                .collect();
            read.begin();
            read.read(&bytes);
        }
    }
}
