//! Reads the ticket in a ClientHello from its raw bytes.

/// The ticket in a ClientHello: in TLS 1.3 the first identity of `pre_shared_key`, in TLS 1.2 `session_ticket`.
pub(crate) fn ticket(record: &[u8]) -> Option<Vec<u8>> {
    // Skips the headers of record and handshake, the version and the random.
    let mut rest = record.get(5 + 4 + 2 + 32..)?;
    for width in [1, 2, 1] {
        // Skips the session id, the cipher suites and the compression methods.
        (_, rest) = counted(rest, width)?;
    }
    let (mut extensions, _) = counted(rest, 2)?;
    let mut of_tls12 = None;
    while !extensions.is_empty() {
        let (kind, after) = extensions.split_at_checked(2)?;
        let (content, next) = counted(after, 2)?;
        match kind {
            PRE_SHARED_KEY => {
                let (identities, _) = counted(content, 2)?;
                return Some(counted(identities, 2)?.0.to_vec());
            }
            SESSION_TICKET if !content.is_empty() => of_tls12 = Some(content.to_vec()),
            _ => {}
        }
        extensions = next;
    }
    of_tls12
}

/// The bytes after a length field of this width, and the remaining bytes.
fn counted(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

const SESSION_TICKET: &[u8] = &[0, 35];
const PRE_SHARED_KEY: &[u8] = &[0, 41];
