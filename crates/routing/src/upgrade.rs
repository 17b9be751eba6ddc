//! Which protocols a route may allow a request to switch to (RFC 9110, 7.8).

/// Versions of HTTP, and TLS within a connection (RFC 2817). A member that speaks them in a tunnel would get requests
/// that the proxy has not checked.
const REFUSED: [&str; 7] = ["h2", "h2c", "h3", "http", "https", "tls", "connect-udp"];

/// Checks the name of a protocol in `[[routes]] upgrade`.
///
/// # Errors
/// The problem, as a sentence.
pub fn check_protocol(protocol: &str) -> Result<(), String> {
    let mut parts = protocol.split('/');
    let token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
    if !parts.clone().all(token) || parts.clone().count() > 2 {
        return Err(format!(
            "{protocol:?} is not a protocol: write a name, with its version after a slash if it has one"
        ));
    }
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    if REFUSED.contains(&name.as_str()) {
        return Err(format!(
            "{protocol:?} would carry requests that the proxy does not inspect: no route may upgrade to it"
        ));
    }
    Ok(())
}

/// Whether a token may contain this byte (RFC 9110, 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_that_carry_requests_are_refused() {
        for (protocol, fits) in [
            ("websocket", true),
            ("WebSocket", true),
            ("IRC/6.9", true),
            ("", false),
            ("a b", false),
            ("a,b", false),
            ("a/", false),
            ("a/1/2", false),
            ("h2c", false),
            ("H2C", false),
            ("HTTP/2.0", false),
            ("TLS/1.2", false),
        ] {
            assert_eq!(check_protocol(protocol).is_ok(), fits, "{protocol:?}");
        }
    }
}
