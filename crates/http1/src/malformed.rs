//! Errors in responses.

/// A response that is not valid HTTP/1, or that parsers could read differently. Its connection is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The status line names another protocol, or another version of HTTP.
    #[error("it does not begin with HTTP/1.0 or HTTP/1.1")]
    Version,
    /// The status line has no status code with three digits, 100 or greater.
    #[error("its status line has no status code with three digits")]
    Status,
    /// A malformed field, or a line end within a field.
    #[error("a line of its head is not a header field")]
    Field,
    /// A field that continues on the next line. RFC 9112, 5.2 forbids senders to do that.
    #[error("a header field continues on a second line (folding)")]
    Folded,
    /// The head has more fields than this maximum.
    #[error("its head has more than {0} header fields (response_fields_max)")]
    Fields(usize),
    /// The head is larger than [`HEAD_BYTES_MAX`](crate::HEAD_BYTES_MAX).
    #[error("its head has more than {} KiB", crate::HEAD_BYTES_MAX >> 10)]
    TooLarge,
    /// A Content-Length is not a number, or several of them differ.
    #[error("its Content-Length is not a number, or is repeated with another value")]
    Length,
    /// A transfer coding does not determine the end of the body, or the version is HTTP/1.0.
    #[error("its Transfer-Encoding is not `chunked` alone, or its version is HTTP/1.0")]
    Coding,
    /// The size line of a chunk or the end of its data is malformed.
    #[error("invalid chunk")]
    Chunk,
    /// Chunk extensions and trailers exceed the limit of [`Decoder`](crate::Decoder).
    #[error("too many bytes in chunk extensions or trailers")]
    Overhead,
    /// The connection ended before the response was complete.
    #[error("the connection ended before the response was complete")]
    Incomplete,
}
