//! What is wrong with a response.

/// A response that is not valid HTTP/1, or that could be read in two ways. Its connection carries no other request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The status line names another protocol, or another version of it.
    #[error("invalid HTTP version")]
    Version,
    /// The status line has no status code of three digits from 100.
    #[error("invalid HTTP status-code")]
    Status,
    /// A field that is none, or an end of line within one.
    #[error("invalid HTTP header")]
    Field,
    /// More than 100 fields.
    #[error("too many HTTP headers")]
    Fields,
    /// A head larger than [`HEAD_BYTES_MAX`](crate::HEAD_BYTES_MAX).
    #[error("the head is too large")]
    TooLarge,
    /// A Content-Length that is no number, or several that differ.
    #[error("invalid Content-Length")]
    Length,
    /// A transfer coding that leaves the end of the body open, or one in HTTP/1.0.
    #[error("invalid Transfer-Encoding")]
    Coding,
    /// The size line of a chunk, or the end of its data.
    #[error("invalid chunk")]
    Chunk,
    /// Extensions of chunks, or trailers, longer than [`Decoder`](crate::Decoder) reads.
    #[error("too many bytes in chunk extensions or trailers")]
    Overhead,
    /// The connection ended before the response was complete.
    #[error("the connection ended before the response was complete")]
    Incomplete,
}
