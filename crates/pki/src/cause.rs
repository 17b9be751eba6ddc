//! Why a connection failed, in plain words. The errors of libraries name internal layers and contain URLs.

use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError, Error as TlsError, InvalidMessage};

use crate::{certificate::Day, client_verifier::handshake_reason};

/// Maximum length of a library's message, in characters.
const LIBRARY_TEXT_MAX: usize = 200;

/// Which side of the proxy a connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client of the proxy.
    Client,
    /// A member of a pool.
    Member,
}

impl Peer {
    /// The name at the start of a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "the client",
            Self::Member => "the member",
        }
    }

    /// The message from this peer that the proxy waits for at the start of a connection.
    pub fn message(self) -> &'static str {
        match self {
            Self::Client => "request",
            Self::Member => "response",
        }
    }
}

/// The message for the first error in the chain that this module or `known` recognizes. If none is recognized: the messages of
/// the libraries, shortened, on one line and without URLs.
pub fn cause(
    error: &(dyn Error + 'static),
    peer: Peer,
    known: impl Fn(&(dyn Error + 'static)) -> Option<String>,
) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(words) = known(error).or_else(|| of_connection(error, peer)) {
            return words;
        }
        let text = error.to_string();
        // Many errors repeat the message of their source.
        if !texts.iter().any(|outer| outer.contains(&text)) {
            texts.push(text);
        }
        next = source_of(error);
    }
    in_library_words(&texts.join(": "))
}

/// The source of an error. An IO error does not return the error that it wraps as its source.
fn source_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn of_connection(error: &(dyn Error + 'static), peer: Peer) -> Option<String> {
    if let Some(error) = error.downcast_ref::<TlsError>() {
        return of_tls(error, peer);
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Some(end_of_stream(&error.to_string(), peer)),
        // The wrapped error is more precise than the kind.
        _ if error.get_ref().is_some() => None,
        kind => of_system(kind, peer),
    }
}

fn end_of_stream(text: &str, peer: Peer) -> String {
    let (peer, message) = (peer.as_str(), peer.message());
    if text.contains("handshake") {
        format!("{peer} closed the connection during the TLS handshake")
    } else if text.contains("close_notify") {
        format!("{peer} closed the connection without a TLS close_notify")
    } else {
        format!("{peer} closed the connection before the {message} was complete")
    }
}

fn of_system(kind: io::ErrorKind, peer: Peer) -> Option<String> {
    let words = match kind {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::HostUnreachable => "no route to the host",
        io::ErrorKind::NetworkUnreachable => "no route to the network",
        io::ErrorKind::ConnectionReset => {
            return Some(format!("{} reset the connection", peer.as_str()));
        }
        io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => {
            return Some(format!("{} closed the connection", peer.as_str()));
        }
        _ => return None,
    };
    Some(words.to_owned())
}

fn of_tls(error: &TlsError, peer: Peer) -> Option<String> {
    let name = peer.as_str();
    Some(match error {
        TlsError::InvalidCertificate(error) => of_certificate(error, peer),
        TlsError::AlertReceived(alert) => match meaning(*alert) {
            Some(meaning) => format!(
                "{name} sent the TLS alert {}: {meaning}",
                alert_name(*alert)
            ),
            None => format!("{name} sent the TLS alert {}", alert_name(*alert)),
        },
        TlsError::NoCertificatesPresented => format!("{name} sent no certificate"),
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("{name} does not speak TLS on this port; it may expect plain HTTP")
        }
        TlsError::InvalidMessage(fault) => {
            format!("{name} sent a malformed TLS message: {}", words(fault))
        }
        TlsError::InappropriateMessage { .. } | TlsError::InappropriateHandshakeMessage { .. } => {
            format!("{name} sent an unexpected TLS message")
        }
        TlsError::PeerIncompatible(fault) => {
            format!(
                "{name} and the proxy have no TLS parameters in common: {}",
                words(fault)
            )
        }
        TlsError::PeerMisbehaved(fault) => {
            format!("{name} violated the TLS protocol: {}", words(fault))
        }
        TlsError::DecryptError => format!("{name} sent a TLS record that cannot be decrypted"),
        TlsError::PeerSentOversizedRecord => format!("{name} sent a TLS record that is too large"),
        TlsError::NoApplicationProtocol => {
            format!("{name} and the proxy have no ALPN protocol in common")
        }
        _ => return None,
    })
}

/// Why a certificate was refused: the message of the proxy's verifier, or else a message by kind.
fn of_certificate(error: &CertificateError, peer: Peer) -> String {
    let name = peer.as_str();
    match error {
        CertificateError::Other(found) => found.0.to_string(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("{name}'s certificate expired on {}", Day(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!(
                "{name}'s certificate is not valid before {}",
                Day(*not_before)
            )
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let presented = if presented.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", presented.join(", "))
            };
            format!(
                "{name}'s certificate is not valid for the name {}: {presented}",
                expected.to_str()
            )
        }
        CertificateError::NotValidForName => {
            format!("{name}'s certificate is not valid for its name")
        }
        // The invalid signature is that of a CA, or that by which the peer proves that it has the key.
        CertificateError::BadSignature => {
            format!(
                "{name}'s certificate, or the signature of its handshake, does not match its key"
            )
        }
        CertificateError::InvalidPurposeContext { .. } => {
            format!("{name}'s certificate is not valid for this side of a TLS connection")
        }
        CertificateError::BadEncoding => format!("{name}'s certificate cannot be parsed"),
        error => match handshake_reason(&TlsError::InvalidCertificate(error.clone())) {
            Some(reason) => format!("{name}'s certificate {}", reason.sentence()),
            None => format!("{name}'s certificate is refused"),
        },
    }
}

/// The meaning of an alert, as the second part of a sentence.
fn meaning(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::UnknownCA => "it does not trust the CA of the proxy's certificate",
        AlertDescription::BadCertificate => "it cannot verify the proxy's certificate",
        AlertDescription::CertificateExpired => {
            "it considers the proxy's certificate expired or not valid yet"
        }
        AlertDescription::CertificateRevoked => "it considers the proxy's certificate revoked",
        AlertDescription::CertificateUnknown | AlertDescription::UnsupportedCertificate => {
            "it does not accept the proxy's certificate"
        }
        AlertDescription::CertificateRequired => "it requires a certificate of the proxy",
        AlertDescription::AccessDenied => "it denies the proxy access",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it accepts none of the proxy's TLS parameters"
        }
        AlertDescription::ProtocolVersion => {
            "it does not support the proxy's TLS versions, 1.2 and 1.3"
        }
        AlertDescription::UnrecognisedName => "it does not have the requested server name",
        AlertDescription::NoApplicationProtocol => "it accepts none of the proxy's ALPN protocols",
        AlertDescription::DecryptError => "it cannot verify a signature of the handshake",
        AlertDescription::InternalError => "it had an internal error",
        AlertDescription::UserCanceled => "it canceled the handshake",
        _ => return None,
    })
}

/// An alert as RFC 8446, 6.2, spells it.
fn alert_name(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => "unknown_ca".to_owned(),
        AlertDescription::UnrecognisedName => "unrecognized_name".to_owned(),
        AlertDescription::UnknownPSKIdentity => "unknown_psk_identity".to_owned(),
        AlertDescription::Unknown(number) => number.to_string(),
        alert => words(alert).replace(' ', "_"),
    }
}

/// The name of an enum's variant as words: `NoCipherSuitesInCommon` is "no cipher suites in common".
fn words(variant: impl std::fmt::Debug) -> String {
    let mut words = String::new();
    for character in format!("{variant:?}").chars() {
        if character.is_ascii_uppercase()
            && words.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        {
            words.push(' ');
        }
        words.push(character.to_ascii_lowercase());
    }
    in_library_words(&words)
}

/// A library's message, cleaned up for one log line.
fn in_library_words(text: &str) -> String {
    // The number of the error adds nothing to the message.
    let text = match text.rsplit_once(" (os error ") {
        Some((text, number)) if number.ends_with(')') => text,
        _ => text,
    };
    let text = text.strip_prefix(RESOLVER).unwrap_or(text);
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let kept: Vec<_> = plain
        .split(' ')
        .filter(|word| !word.is_empty() && !word.contains("://"))
        .collect();
    let text = kept.join(" ");
    let text = text.trim_end_matches([':', ' ', ',', ';']);
    match text.char_indices().nth(LIBRARY_TEXT_MAX) {
        Some(_) => text
            .chars()
            .take(LIBRARY_TEXT_MAX - 1)
            .chain(['…'])
            .collect(),
        None => text.to_owned(),
    }
}

/// Prefix of resolver errors in the standard library.
const RESOLVER: &str = "failed to lookup address information: ";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    fn of(error: &(dyn Error + 'static)) -> String {
        cause(error, Peer::Member, |_| None)
    }

    /// The error that rustls returns if it gets these bytes instead of a ServerHello.
    fn answered(bytes: &[u8]) -> io::Error {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = "c1".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        client.read_tls(&mut &bytes[..]).expect("bytes");
        io::Error::other(client.process_new_packets().expect_err("no handshake"))
    }

    fn alert(number: u8) -> io::Error {
        answered(&[21, 3, 3, 0, 2, 2, number])
    }

    #[test]
    fn tls_errors_have_plain_messages() {
        for (error, expected) in [
            (
                answered(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
                "the member does not speak TLS on this port; it may expect plain HTTP",
            ),
            (
                alert(48),
                "the member sent the TLS alert unknown_ca: it does not trust the CA of the proxy's certificate",
            ),
            (
                alert(42),
                "the member sent the TLS alert bad_certificate: it cannot verify the proxy's certificate",
            ),
            (
                alert(45),
                "the member sent the TLS alert certificate_expired: it considers the proxy's certificate expired or not \
                 valid yet",
            ),
            (
                alert(40),
                "the member sent the TLS alert handshake_failure: it accepts none of the proxy's TLS parameters",
            ),
            (
                alert(70),
                "the member sent the TLS alert protocol_version: it does not support the proxy's TLS versions, 1.2 and 1.3",
            ),
            (
                alert(116),
                "the member sent the TLS alert certificate_required: it requires a certificate of the proxy",
            ),
            (
                alert(113),
                "the member sent the TLS alert bad_certificate_status_response",
            ),
            (alert(200), "the member sent the TLS alert 200"),
            (
                answered(&[22, 3, 3, 0, 5, 2, 0, 0, 1, 0]),
                "the member sent a malformed TLS message: missing data(\"protocol version\")",
            ),
            (
                answered(&[23, 3, 3, 0, 1, 0]),
                "the member sent an unexpected TLS message",
            ),
        ] {
            assert_eq!(of(&error), expected);
        }
    }

    #[test]
    fn a_refused_certificate_has_a_message_with_its_fault() {
        let at = |seconds| {
            rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
        };
        let expired = CertificateError::ExpiredContext {
            time: at(86_400),
            not_after: at(0),
        };
        let early = CertificateError::NotValidYetContext {
            time: at(0),
            not_before: at(86_400),
        };
        let name = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: "c1.example.com".try_into().expect("a name"),
            presented: presented.iter().map(|name| name.to_string()).collect(),
        };
        for (error, expected) in [
            (expired, "expired on 1970-01-01T00:00:00Z"),
            (early, "is not valid before 1970-01-02T00:00:00Z"),
            (CertificateError::Expired, "has expired"),
            (CertificateError::Revoked, "is revoked"),
            (
                CertificateError::UnknownIssuer,
                "was not issued by a CA that this proxy trusts",
            ),
            (
                name(&["c2.example.com", "puppet"]),
                "is not valid for the name c1.example.com: it has c2.example.com, puppet",
            ),
            (
                name(&[]),
                "is not valid for the name c1.example.com: it has none",
            ),
            (CertificateError::BadEncoding, "cannot be parsed"),
        ] {
            let error = TlsError::InvalidCertificate(error);
            assert_eq!(of(&error), format!("the member's certificate {expected}"));
        }
    }

    #[test]
    fn system_errors_have_plain_messages() {
        let named = "a-name.invalid:1";
        let resolved = std::net::ToSocketAddrs::to_socket_addrs(named).expect_err("no address");
        let os = io::Error::from_raw_os_error;
        for (error, expected) in [
            (os(111), "connection refused"),
            (os(104), "the member reset the connection"),
            (os(32), "the member closed the connection"),
            (os(110), "connection timed out"),
            (os(113), "no route to the host"),
            (os(101), "no route to the network"),
            (os(2), "No such file or directory"),
            (
                io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"),
                "the member closed the connection during the TLS handshake",
            ),
        ] {
            assert_eq!(of(&error), expected);
        }
        let resolved = of(&resolved);
        assert!(
            !resolved.contains("lookup") && !resolved.is_empty(),
            "{resolved}"
        );
    }

    #[test]
    fn a_library_message_becomes_one_short_line_without_urls() {
        let long = "x".repeat(3000);
        for (text, expected) in [
            ("broken: see https://docs.rs/rustls", "broken: see"),
            ("two\r\nlines\t and \u{1b}[2J", "two lines and [2J"),
            ("mailbox http://a http://b", "mailbox"),
            ("", ""),
        ] {
            assert_eq!(of(&io::Error::other(text)), expected);
        }
        let cut = of(&io::Error::other(long));
        assert_eq!(cut.chars().count(), LIBRARY_TEXT_MAX);
    }
}
