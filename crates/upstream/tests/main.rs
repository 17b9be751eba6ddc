//! Requests to a member and the member's responses, in raw bytes.

mod answers;
mod requests;
