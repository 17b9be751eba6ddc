//! Set-up of the tests about one request and its response.

use testkit::{Response, TestConnection};

use crate::support::{Estate, EstateBuilder};

/// One compiler, and a proxy that streams every body to it.
pub(crate) fn streaming() -> EstateBuilder {
    one_compiler().with("[upstream]\nbody_buffer_max = \"0B\"")
}

pub(crate) fn one_compiler() -> EstateBuilder {
    Estate::builder().compilers(1)
}

#[track_caller]
pub(crate) fn raw(connection: &mut TestConnection, bytes: &str) -> Response {
    connection.send_raw(bytes.as_bytes()).expect("sends");
    connection.read_response().expect("an answer")
}
