//! HTTP/1.1 and HTTP/1.0 as a client: requests to bytes, bytes to responses (RFC 9112).
//!
//! [`RequestWatch`] also finds faults in clients' requests that hyper's parser accepts.
//!
//! Without IO and clock. The crate refuses to write requests, and to read responses, that another parser could read
//! differently.

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
