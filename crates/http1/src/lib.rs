//! HTTP/1.1 and HTTP/1.0 as a client: requests to bytes, bytes to responses (RFC 9112).
//!
//! No IO, no clock. Requests that a server could read in two ways are not written, and responses that a client could read in
//! two ways are not read.

mod body;
mod malformed;
mod request;
mod response;

pub use body::{Decoded, Decoder};
pub use malformed::Malformed;
pub use request::{
    Framing, RequestLine, Unwritable, begin_chunk, end_chunk, end_chunks, write_head,
};
pub use response::{BodyKind, HEAD_BYTES_MAX, Head, HeadReader};
