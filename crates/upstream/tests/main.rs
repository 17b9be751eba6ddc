//! Requests to a member and its responses, in raw bytes.

mod answers;
mod requests;
