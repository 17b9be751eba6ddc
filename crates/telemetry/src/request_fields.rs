//! What a client sent in its request head, copied into one bounded allocation.
//!
//! A record may wait in a queue. Slices of the connection's buffers would keep these buffers allocated, so the few bytes of
//! interest are copied.

/// What a client sent. A field that the client did not send is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFields<'a> {
    /// Request method.
    pub method: Option<&'a [u8]>,
    /// Path and query as received.
    pub target: Option<&'a [u8]>,
    /// `Host`.
    pub host: Option<&'a [u8]>,
    /// `Referer`.
    pub referer: Option<&'a [u8]>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// Value of `X-Request-Id` as sent upstream.
    pub request_id: Option<&'a [u8]>,
}

/// A bounded copy of a [`RequestFields`]; longer fields are truncated.
#[derive(Clone, Debug, Default)]
pub struct RequestFieldsCopy {
    bytes: Vec<u8>,
    ends: [u16; FIELDS],
    cut: u8,
}

impl RequestFieldsCopy {
    /// Copies, truncating each field to its limit.
    pub fn of(fields: &RequestFields<'_>) -> Self {
        Self::with_room(Vec::new(), fields)
    }

    /// Like [`of`](Self::of), but uses a buffer that [`take_room`](Self::take_room) of another copy returned.
    pub fn with_room(room: Vec<u8>, fields: &RequestFields<'_>) -> Self {
        let fields = [
            fields.method,
            fields.target,
            fields.host,
            fields.referer,
            fields.user_agent,
            fields.request_id,
        ];
        let kept = |index: usize| {
            let field = fields[index].unwrap_or_default();
            &field[..field.len().min(LIMITS[index])]
        };
        let mut bytes = room;
        bytes.clear();
        bytes.reserve((0..FIELDS).map(|index| kept(index).len()).sum());
        let mut copy = Self::default();
        for index in 0..FIELDS {
            bytes.extend_from_slice(kept(index));
            copy.ends[index] =
                u16::try_from(bytes.len()).expect("the limits add up to less than 64 KiB");
            if fields[index].is_some_and(|field| field.len() > LIMITS[index]) {
                copy.cut |= 1 << index;
            }
        }
        copy.bytes = bytes;
        copy
    }

    /// Takes the buffer of a copy that is no longer needed.
    pub fn take_room(&mut self) -> Vec<u8> {
        (self.ends, self.cut) = ([0; FIELDS], 0);
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn method(&self) -> FieldText<'_> {
        self.field(0)
    }

    pub(crate) fn target(&self) -> FieldText<'_> {
        self.field(1)
    }

    pub(crate) fn host(&self) -> FieldText<'_> {
        self.field(2)
    }

    pub(crate) fn referer(&self) -> FieldText<'_> {
        self.field(3)
    }

    pub(crate) fn user_agent(&self) -> FieldText<'_> {
        self.field(4)
    }

    pub(crate) fn request_id(&self) -> FieldText<'_> {
        self.field(5)
    }

    fn field(&self, index: usize) -> FieldText<'_> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        FieldText {
            bytes: &self.bytes[usize::from(start)..usize::from(self.ends[index])],
            cut: self.cut & (1 << index) != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldText<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) cut: bool,
}

impl<'a> From<&'a str> for FieldText<'a> {
    fn from(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        Self {
            bytes: &bytes[..bytes.len().min(TEXT_BYTES_MAX)],
            cut: bytes.len() > TEXT_BYTES_MAX,
        }
    }
}

const FIELDS: usize = 6;

/// Maximum bytes of each field, in order. Escaping may turn one byte into four.
const LIMITS: [usize; FIELDS] = [32, 2048, 256, 512, 512, 128];

/// Maximum bytes of any other text, such as a certname or an SNI.
const TEXT_BYTES_MAX: usize = 512;
