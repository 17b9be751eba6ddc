//! Input taken apart from the front; what is not there any more is zero or empty.

/// Bytes still to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// As many of `count` as there are.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A length in one byte, and that many.
    pub(crate) fn run(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }
}
