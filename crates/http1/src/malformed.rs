//! Errors in responses.

/// A response that is not valid HTTP/1, or that parsers could read differently. Its connection is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The status line has another protocol, or another version of HTTP.
    #[error("invalid HTTP version")]
    Version,
    /// The status line has no status code with three digits from 100.
    #[error("invalid HTTP status-code")]
    Status,
    /// A malformed field, or an end of line within one.
    #[error("invalid HTTP header")]
    Field,
    /// More than 100 fields.
    #[error("too many HTTP headers")]
    Fields,
    /// The head is larger than [`HEAD_BYTES_MAX`](crate::HEAD_BYTES_MAX).
    #[error("the head is too large")]
    TooLarge,
    /// A Content-Length that is not a number, or several that differ.
    #[error("invalid Content-Length")]
    Length,
    /// A transfer coding that does not define the end of the body, or one in HTTP/1.0.
    #[error("invalid Transfer-Encoding")]
    Coding,
    /// A malformed size line of a chunk, or a malformed end of its data.
    #[error("invalid chunk")]
    Chunk,
    /// Chunk extensions and trailers exceed the limit of [`Decoder`](crate::Decoder).
    #[error("too many bytes in chunk extensions or trailers")]
    Overhead,
    /// The connection ended before the response was complete.
    #[error("the connection ended before the response was complete")]
    Incomplete,
}
