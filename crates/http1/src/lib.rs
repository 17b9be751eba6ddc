//! HTTP/1.1 and HTTP/1.0 (RFC 9112): parses requests of clients and responses of members, and writes both.
//!
//! The crate does no IO and reads no clock. It refuses to write requests, and to read messages, that another parser could read
//! differently.

mod body;
mod chunks;
mod fields;
mod malformed;
mod request;
mod request_head;
mod response;
mod response_head;

pub use body::{Decoded, Decoder};
pub use fields::{Field, FieldName, Fields};
pub use malformed::Malformed;
pub use request::{
    FieldLines, Framing, RequestLine, Unwritable, begin_chunk, end_chunk, end_chunks, write_head,
};
pub use request_head::{
    HeadFault, REQUEST_FIELDS_MAX, RefusedHead, RequestHead, RequestHeadReader,
};
pub use response::{BodyKind, HEAD_BYTES_MAX, Head, HeadReader};
pub use response_head::{BodyCoding, BodySize, ResponseHead};
