//! Reads fuzz input from the front. Reading past the end returns zero or an empty slice.

/// The bytes that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// Reads up to `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Reads a one-byte length, then up to that many bytes.
    pub(crate) fn run(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }
}
