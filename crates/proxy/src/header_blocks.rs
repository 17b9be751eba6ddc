//! The header blocks of one HTTP/2 connection (RFC 7541). They are decoded only as far as necessary to find pseudo-header
//! fields, and a fragment in `:path`.
//!
//! Trailers must not have pseudo-header fields (RFC 9113, 8.1). h2 refuses one that follows another field, but silently drops
//! one at the start of trailers. This module therefore checks the first field of each block.
//!
//! h2 also silently drops a fragment of `:path`. This module searches the value of `:path` for `#`, and reads no other value.

use crate::huffman::Huffman;

/// Reads all header blocks of one connection, in order.
#[derive(Debug)]
pub(crate) struct HeaderBlocks {
    /// Which entries of the dynamic table are pseudo-header fields, with the newest in the lowest bit. The table holds at most
    /// 128 entries (4,096 bytes, 32 or more for each). Evicted entries stay in this set, because h2 closes a connection that
    /// refers to one.
    pseudo_entries: u128,
    /// Which of them have the name `:path`.
    path_entries: u128,
    /// Which entries of the dynamic table are a `:path` with a fragment.
    fragment_entries: u128,
    next: Next,
    /// The number that is being read, or how many bytes of a string remain.
    number: u32,
    shift: u32,
    /// Whether the field becomes an entry of the dynamic table.
    inserts: bool,
    huffman: bool,
    /// `None`: the block has no field yet.
    first_is_pseudo: Option<bool>,
    /// How many bytes of the current name match `:path`. `None`: the name is another one.
    path_matched: Option<usize>,
    is_path: bool,
    /// Bits of a Huffman-coded value that do not form a complete character yet.
    coded: Huffman,
    /// Whether a `:path` of the current block has a fragment.
    has_fragment: bool,
}

/// What the next byte means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first byte of a field, or of a table size update.
    Field,
    /// The first byte of the length of a string.
    Length(Number),
    /// A further byte of a number.
    More(Number),
    NameFirst,
    NameRest,
    Value,
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// The index of an entry that is the whole field.
    Entry,
    /// The index of an entry that has the name of the field. 0: the name follows.
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
/// Entries of the static table with the name `:path`.
const STATIC_PATH: std::ops::RangeInclusive<u32> = 4..=5;
const PATH: &[u8] = b":path";
/// `:path` in Huffman code, with its padding.
const PATH_HUFFMAN: &[u8] = &[0xb9, 0x58, 0xd3, 0x3f];

impl HeaderBlocks {
    pub(crate) fn new() -> Self {
        Self {
            pseudo_entries: 0,
            path_entries: 0,
            fragment_entries: 0,
            next: Next::Field,
            number: 0,
            shift: 0,
            inserts: false,
            huffman: false,
            first_is_pseudo: None,
            path_matched: None,
            is_path: false,
            coded: Huffman::default(),
            has_fragment: false,
        }
    }

    pub(crate) fn begin(&mut self) {
        self.next = Next::Field;
        self.first_is_pseudo = None;
        self.has_fragment = false;
    }

    pub(crate) fn has_fragment(&self) -> bool {
        self.has_fragment
    }

    pub(crate) fn begins_with_pseudo(&self) -> bool {
        self.first_is_pseudo == Some(true)
    }

    /// Reads the next bytes of the current block. h2 reads the same bytes and closes the connection if they are
    /// invalid.
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
        match self.next {
            Next::Value if self.is_path => self.path_value(&bytes[..skipped]),
            Next::NameRest => bytes[..skipped]
                .iter()
                .for_each(|byte| self.match_path(*byte)),
            _ => {}
        }
        self.number = (left - skipped) as u32;
        if self.number == 0 {
            if self.next == Next::NameRest {
                self.end_name();
            }
            self.next = then;
        }
        &bytes[skipped..]
    }

    /// Searches the next bytes of a path for the start of a fragment.
    fn path_value(&mut self, bytes: &[u8]) {
        let found = if self.huffman {
            bytes
                .iter()
                .fold(false, |found, byte| self.coded.read(*byte) | found)
        } else {
            bytes.contains(&b'#')
        };
        if found {
            self.has_fragment = true;
            self.fragment_entries |= u128::from(self.inserts);
        }
    }

    fn match_path(&mut self, byte: u8) {
        let path = if self.huffman { PATH_HUFFMAN } else { PATH };
        self.path_matched = self
            .path_matched
            .filter(|matched| path.get(*matched) == Some(&byte))
            .map(|matched| matched + 1);
    }

    fn end_name(&mut self) {
        let path = if self.huffman { PATH_HUFFMAN } else { PATH };
        self.is_path = self.path_matched == Some(path.len());
        if self.inserts {
            self.path_entries |= u128::from(self.is_path);
        }
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
                    // The number has more bytes than h2 accepts, so h2 closes the connection.
                    self.next = Next::Field;
                }
            }
            Next::NameFirst => {
                let pseudo = if self.huffman {
                    byte >> 1 == COLON_HUFFMAN
                } else {
                    byte == b':'
                };
                self.named(pseudo, false);
                self.path_matched = Some(0);
                self.match_path(byte);
                self.number -= 1;
                self.next = match self.number {
                    0 => Next::Length(Number::ValueLength),
                    _ => Next::NameRest,
                };
            }
            Next::NameRest | Next::Value => {}
        }
    }

    /// Starts a number in the low bits of a byte.
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
                self.named(self.is_pseudo(self.number), false);
                self.has_fragment |= is_among(self.fragment_entries, self.number);
                Next::Field
            }
            Number::NameEntry if self.number == 0 => Next::Length(Number::NameLength),
            Number::NameEntry => {
                let is_path =
                    STATIC_PATH.contains(&self.number) || is_among(self.path_entries, self.number);
                self.named(self.is_pseudo(self.number), is_path);
                Next::Length(Number::ValueLength)
            }
            Number::TableSize => Next::Field,
            Number::NameLength if self.number == 0 => {
                self.named(false, false);
                Next::Length(Number::ValueLength)
            }
            Number::NameLength => Next::NameFirst,
            Number::ValueLength if self.number == 0 => Next::Field,
            Number::ValueLength => {
                self.coded = Huffman::default();
                Next::Value
            }
        };
    }

    fn is_pseudo(&self, entry: u32) -> bool {
        match entry {
            1..=STATIC_PSEUDO => true,
            _ => is_among(self.pseudo_entries, entry),
        }
    }

    fn named(&mut self, pseudo: bool, is_path: bool) {
        self.first_is_pseudo.get_or_insert(pseudo);
        self.is_path = is_path;
        if self.inserts {
            self.pseudo_entries = self.pseudo_entries << 1 | u128::from(pseudo);
            self.path_entries = self.path_entries << 1 | u128::from(is_path);
            self.fragment_entries <<= 1;
        }
    }
}

/// Whether an entry of the dynamic table is in this set. The newest entry is in the lowest bit of the set.
fn is_among(entries: u128, entry: u32) -> bool {
    let newest_first = entry
        .checked_sub(STATIC + 1)
        .and_then(|age| entries.checked_shr(age));
    newest_first.unwrap_or(0) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether the last of these blocks starts with a pseudo-header field, in pieces of any size.
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
        // Literals with literal names, plain and in Huffman code (`:path`, `x`).
        check(&[b"\x00\x05:path\x01/"], true);
        check(&[b"\x40\x05:path\x01/"], true);
        check(&[b"\x10\x01x\x01/"], false);
        check(&[&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 1, b'/']], true);
        check(&[&[0x00, 0x81, 0xf3, 1, b'/']], false);
        // A table size update is not a field, and later fields do not count.
        check(&[&[0x20, 0x3f, 0xe1, 0x1f, 0x82]], true);
        check(&[&[0x3f, 0xe1, 0x1f, 0x8f, 0x82]], false);
        check(&[b"\x00\x01x\x00\x82"], false);
    }

    #[test]
    fn entries_of_the_dynamic_table_are_followed() {
        // `:path` and then `x` are inserted: 62 is `x`, 63 is `:path`, and names may refer to them.
        let inserted: &[u8] = b"\x44\x01/\x40\x01x\x01y";
        check(&[inserted, &[0xbe]], false);
        check(&[inserted, &[0xbf]], true);
        check(&[inserted, &[0x7f, 0, 1, b'z']], true);
        check(&[inserted, &[0x0f, 48, 1, b'z']], true);
        check(&[inserted, &[0x0f, 47, 1, b'z']], false);
        check(&[inserted, &[0x7f, 0, 1, b'z'], &[0xbe]], true);
        // Literals that are not inserted, and values of any length, do not change the table.
        let long = [&[0x00, 1, b'x', 0x7f, 0x80, 0x01][..], &[b':'; 255]].concat();
        check(&[inserted, &long, &[0xbf]], true);
        check(&[inserted, &long, &[0xbe]], false);
        // Indexes outside the table.
        check(&[inserted, &[0xff, 0xff, 0xff, 0xff, 0x0f]], false);
    }

    /// Checks whether the last of these blocks has a path with a fragment, in pieces of any size.
    #[track_caller]
    fn check_fragment(blocks: &[&[u8]], expected: bool) {
        for piece in 1..=64 {
            let mut read = HeaderBlocks::new();
            for block in blocks {
                read.begin();
                block.chunks(piece).for_each(|bytes| read.read(bytes));
            }
            let found = read.has_fragment();
            assert_eq!(found, expected, "{blocks:x?} in pieces of {piece}");
        }
    }

    #[test]
    fn a_fragment_is_found_in_a_path_and_in_no_other_field() {
        // `/a#b` and `/a?b` in Huffman code.
        const CODED: &[u8] = &[0x84, 0x60, 0x7f, 0xf5, 0x1f];
        const CODED_QUERY: &[u8] = &[0x84, 0x60, 0x7f, 0xe4, 0x7f];
        let coded = |name: &[u8], value: &[u8]| [name, value].concat();
        check_fragment(&[b""], false);
        check_fragment(&[b"\x84"], false);
        check_fragment(&[b"\x04\x04/a#b"], true);
        check_fragment(&[b"\x04\x03/ab"], false);
        check_fragment(&[b"\x15\x01#"], true);
        check_fragment(&[b"\x44\x04/a#b\x82"], true);
        check_fragment(&[&coded(b"\x04", CODED)], true);
        check_fragment(&[&coded(b"\x04", CODED_QUERY)], false);
        // Literal names.
        check_fragment(&[b"\x00\x05:path\x04/a#b"], true);
        check_fragment(&[b"\x00\x84\xb9\x58\xd3\x3f\x04/a#b"], true);
        check_fragment(&[b"\x00\x05:patt\x04/a#b"], false);
        check_fragment(&[b"\x00\x06:paths\x04/a#b"], false);
        check_fragment(&[b"\x00\x04:pat\x04/a#b"], false);
        // Other fields: `referer`, `:authority`.
        check_fragment(&[b"\x0f\x24\x04/a#b\x84"], false);
        check_fragment(&[b"\x01\x04/a#b\x84"], false);
        // The dynamic table: an index of the whole field, and of its name.
        let inserted: &[u8] = b"\x40\x05:path\x04/a#b\x40\x01x\x01#";
        check_fragment(&[inserted], true);
        check_fragment(&[inserted, b"\xbf"], true);
        check_fragment(&[inserted, b"\xbe"], false);
        check_fragment(&[inserted, b"\x0f\x30\x02/#"], true);
        check_fragment(&[inserted, b"\x0f\x2f\x02/#"], false);
        check_fragment(&[inserted, b"\x7f\x00\x01/", b"\xbe"], false);
        check_fragment(&[inserted, b"\x7f\x00\x02/#", b"\xbe"], true);
        check_fragment(&[inserted, b"\x84"], false);
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
                    // Often all ones, because a number then continues in the next byte.
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
