//! A response on its way to a client.

use http::StatusCode;
use http1::Fields;

use crate::response_body::ResponseBody;

/// A response, before it is sent in the client's protocol.
#[derive(Debug)]
pub(crate) struct ClientResponse {
    pub(crate) status: StatusCode,
    /// Fields for the client. The fields that frame the body may be missing.
    pub(crate) fields: Fields,
    pub(crate) body: ResponseBody,
}

impl ClientResponse {
    pub(crate) fn new(status: StatusCode, body: ResponseBody) -> Self {
        Self {
            status,
            fields: Fields::default(),
            body,
        }
    }
}
