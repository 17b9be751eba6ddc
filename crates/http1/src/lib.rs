//! HTTP/1.1 and HTTP/1.0 as a client: requests to bytes, bytes to responses (RFC 9112).
//!
//! And what of a request is wrong that a server's parser takes all the same: [`RequestWatch`] sees its bytes pass.
//!
//! No IO, no clock. Requests that a server could read in two ways are not written, and responses that a client could read in
//! two ways are not read.

mod body;
mod chunks;
mod incoming;
mod malformed;
mod request;
mod response;

pub use body::{Decoded, Decoder};
pub use chunks::ChunkWatch;
pub use incoming::{HeadFault, RequestWatch};
pub use malformed::Malformed;
pub use request::{
    FieldLines, Framing, RequestLine, Unwritable, begin_chunk, end_chunk, end_chunks, write_head,
};
pub use response::{BodyKind, HEAD_BYTES_MAX, Head, HeadReader};
