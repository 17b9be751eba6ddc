//! Whether a ClientHello offers a session to resume (RFC 8446, 4.2.11; RFC 5077, 3.2; RFC 5246, 7.4.1.2).
//!
//! The result decides only which thread computes the response, because the proxy may not know the session. A ClientHello in an
//! unusual form counts here as one without a session. The session is resumed all the same.

/// Whether this record is a complete ClientHello that offers a session: a pre-shared key, a ticket, or, without TLS 1.3, a
/// session id. A client that supports TLS 1.3 always sends a session id.
pub(crate) fn offers_session(bytes: &[u8]) -> bool {
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<bool> {
    let mut bytes = Fields(bytes);
    let [HANDSHAKE, _, _] = bytes.array()? else {
        return None;
    };
    let mut message = bytes.vector::<2>()?;
    let [CLIENT_HELLO] = message.array()? else {
        return None;
    };
    let mut hello = message.vector::<3>()?;
    let _version_and_random = hello.array::<{ 2 + 32 }>()?;
    let session_id = hello.vector::<1>()?;
    let _cipher_suites = hello.vector::<2>()?;
    let _compression_methods = hello.vector::<1>()?;
    let mut extensions = hello.vector::<2>()?;
    if !message.is_empty() || !hello.is_empty() {
        return None;
    }
    let (mut offers, mut knows_tls13) = (false, false);
    while !extensions.is_empty() {
        let extension = u16::from_be_bytes(extensions.array()?);
        let mut content = extensions.vector::<2>()?;
        match extension {
            PRE_SHARED_KEY => offers = true,
            SESSION_TICKET => offers |= !content.is_empty(),
            SUPPORTED_VERSIONS => knows_tls13 |= content.vector::<1>()?.has(TLS13),
            _ => {}
        }
    }
    Some(offers || !knows_tls13 && !session_id.is_empty())
}

/// The fields of a message that have not been read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a list of versions contains this one.
    fn has(&self, version: [u8; 2]) -> bool {
        self.0.chunks_exact(2).any(|listed| listed == version)
    }

    /// The next `N` bytes.
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    /// The next field, which follows a length of `N` bytes.
    fn vector<const N: usize>(&mut self) -> Option<Self> {
        let length = self.array::<N>()?.into_iter();
        let length = length.fold(0, |length, byte| length << 8 | usize::from(byte));
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Self(field))
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS13: [u8; 2] = [3, 4];

#[cfg(test)]
mod tests {
    use std::{io::Write as _, sync::Arc};

    use rustls::{
        ClientConnection, Connection, ServerConnection,
        client::{Resumption, Tls12Resumption},
        crypto::aws_lc_rs::Ticketer,
        server::ServerSessionMemoryCache,
        version,
    };

    use super::*;
    use crate::test_tls::{Versions, configs};

    /// The ClientHellos of a client's first and second connection.
    fn hellos(
        of_client: Versions<'_>,
        of_server: Versions<'_>,
        resumption: Tls12Resumption,
    ) -> [Vec<u8>; 2] {
        let (mut of_server, mut config) = configs(of_server, of_client);
        of_server.ticketer = Ticketer::new().expect("random bytes");
        of_server.session_storage = ServerSessionMemoryCache::new(8);
        let of_server = Arc::new(of_server);
        config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(resumption);
        let config = Arc::new(config);
        [(); 2].map(|()| {
            let name = "puppet".try_into().expect("a name");
            let client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
            let server = ServerConnection::new(Arc::clone(&of_server)).expect("a server");
            hello_of_handshake(client.into(), server.into())
        })
    }

    /// Completes a handshake. Returns the client's first bytes.
    fn hello_of_handshake(mut client: Connection, mut server: Connection) -> Vec<u8> {
        let mut first = None;
        loop {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).expect("memory");
            }
            server.read_tls(&mut &bytes[..]).expect("memory");
            server.process_new_packets().expect("a handshake");
            let was_silent = bytes.is_empty();
            first.get_or_insert(bytes);
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).expect("memory");
            }
            client.read_tls(&mut &bytes[..]).expect("memory");
            client.process_new_packets().expect("a handshake");
            if was_silent && bytes.is_empty() {
                return first.unwrap_or_default();
            }
        }
    }

    /// A ClientHello in several records.
    fn divided(hello: &[u8], at: usize) -> Vec<u8> {
        let mut records = Vec::new();
        let (first, second) = hello[5..].split_at(at);
        for part in [first, second] {
            records.write_all(&hello[..3]).expect("memory");
            let length = u16::try_from(part.len()).expect("a short hello");
            records.write_all(&length.to_be_bytes()).expect("memory");
            records.write_all(part).expect("memory");
        }
        records
    }

    const BOTH: Versions<'_> = &[&version::TLS13, &version::TLS12];
    const OLD: Versions<'_> = &[&version::TLS12];
    const NEW: Versions<'_> = &[&version::TLS13];
    const TICKETS: Tls12Resumption = Tls12Resumption::SessionIdOrTickets;
    const IDS: Tls12Resumption = Tls12Resumption::SessionIdOnly;

    #[test]
    fn a_client_offers_a_session_from_its_second_connection_on() {
        for (of_client, of_server, resumption, second) in [
            (NEW, NEW, TICKETS, true),
            (BOTH, BOTH, TICKETS, true),
            (BOTH, OLD, TICKETS, true),
            (OLD, BOTH, TICKETS, true),
            (OLD, BOTH, IDS, true),
            // A client that supports TLS 1.3 always sends a session id.
            (BOTH, OLD, IDS, false),
        ] {
            let offered = hellos(of_client, of_server, resumption).map(|hello| {
                // Early data or another record may follow.
                let followed = [&hello[..], &[23, 3, 3, 0, 1, 0]].concat();
                assert_eq!(offers_session(&followed), offers_session(&hello));
                offers_session(&hello)
            });
            let case = format!("{of_client:?} with {of_server:?}, {resumption:?}");
            assert_eq!(offered, [false, second], "{case}");
        }
    }

    #[test]
    fn a_hello_that_is_cut_or_divided_or_inconsistent_offers_none() {
        for (versions, resumption) in [(NEW, TICKETS), (OLD, TICKETS), (OLD, IDS)] {
            let [_, hello] = hellos(versions, versions, resumption);
            assert!(offers_session(&hello));
            for length in 0..hello.len() {
                assert!(!offers_session(&hello[..length]), "{length} bytes");
            }
            for at in 0..hello.len() - 5 {
                assert!(!offers_session(&divided(&hello, at)), "divided at {at}");
            }
            // The types of the record and the message, and the lengths of both. The length of the session id is not among them:
            // with another length, the random bytes behind it may by chance be valid fields.
            for position in [0, 3, 4, 5, 6, 7, 8] {
                for change in 1..=255 {
                    let mut changed = hello.clone();
                    changed[position] ^= change;
                    assert!(!offers_session(&changed), "byte {position} ^ {change}");
                }
            }
        }
        assert!(!offers_session(b"GET / HTTP/1.1\r\n\r\n"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let [_, hello] = hellos(BOTH, BOTH, TICKETS);
        for seed in 1..20_000_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as usize
            };
            let mut bytes = hello.clone();
            for _ in 0..next() % 8 {
                let position = next() % bytes.len();
                bytes[position] = next() as u8;
            }
            bytes.truncate(next() % (2 * bytes.len()));
            let read = std::panic::catch_unwind(|| offers_session(&bytes));
            assert!(read.is_ok(), "seed {seed}");
        }
    }
}
