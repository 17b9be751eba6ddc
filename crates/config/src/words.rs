//! The words for enums in a file, and the string forms of types from other crates.

use balancing::settings::{AddressExpansion, Algorithm, CheckKind};
use identity::{CertFormat, DnFormat, HeaderSet, settings::SubjectRule};
use listener::settings::{ClientCertPolicy, InvalidCertPolicy};
use pki::settings::{CrlExpired, Revocation};
use proxy::{
    CaKind,
    settings::{HostRule, IdentityRule, OnDown, OverlongCert},
};
use routing::settings::{ClientRule, RuleAction};
use telemetry::{DaemonSettings, Facility, Format, LogProtocol};
use upstream::settings::{HttpVersion, Plaintext, Scheme, SendProxy};

use crate::{
    config::{AccessLogOutput, ChangeDetection, EventOutput},
    crl_expired,
    forms::log_daemon,
    values::{Text, enum_words},
};

enum_words! {
    AddressExpansion {
        "all" => Self::All,
        "first" => Self::First,
    }
    Algorithm {
        "least-load" => Self::LeastLoad,
        "least-connections" => Self::LeastConnections,
        "round-robin" => Self::RoundRobin,
        "random" => Self::Random,
        "source-hash" => Self::SourceHash,
        "certname-hash" => Self::CertnameHash,
        "first" => Self::First,
    }
    CaKind {
        "puppet-server" => Self::PuppetServer,
        "other" => Self::Other,
    }
    CertFormat {
        "escaped" => Self::Escaped,
        "one-line" => Self::OneLine,
    }
    CheckKind {
        "http" => Self::Http,
        "legacy" => Self::Legacy,
        "tcp" => Self::Tcp,
        "none" => Self::None,
    }
    ClientCertPolicy {
        "optional" => Self::Optional,
        "required" => Self::Required,
        "none" => Self::None,
    }
    ClientRule {
        "verified" => Self::Verified,
        "any" => Self::Any,
    }
    DnFormat {
        "rfc2253" => Self::Rfc2253,
        "openssl" => Self::OpenSsl,
        "cn-last" => Self::CnLast,
    }
    Facility {
        "user" => Self::ALL[0],
        "daemon" => Self::ALL[1],
        "auth" => Self::ALL[2],
        "authpriv" => Self::ALL[3],
        "local0" => Self::ALL[4],
        "local1" => Self::ALL[5],
        "local2" => Self::ALL[6],
        "local3" => Self::ALL[7],
        "local4" => Self::ALL[8],
        "local5" => Self::ALL[9],
        "local6" => Self::ALL[10],
        "local7" => Self::ALL[11],
    }
    HeaderSet {
        "puppet" => Self::Puppet,
        "client-cert" => Self::ClientCert,
        "client-cert-chain" => Self::ClientCertChain,
        "xfcc" => Self::Xfcc,
    }
    HttpVersion {
        "1.1" => Self::Http11,
        "1.0" => Self::Http10,
    }
    HostRule {
        "keep" => Self::Keep,
        "member" => Self::Member,
    }
    InvalidCertPolicy {
        "explain" => Self::Explain,
        "abort" => Self::Abort,
        "forward" => Self::Forward,
    }
    IdentityRule {
        "always" => Self::Always,
        "renewal" => Self::Renewal,
    }
    OnDown {
        "keep" => Self::Keep,
        "cut" => Self::Cut,
    }
    OverlongCert {
        "refuse" => Self::Refuse,
        "omit" => Self::Omit,
    }
    Plaintext {
        "trusted-network" => Self::TrustedNetwork,
    }
    Revocation {
        "chain" => Self::Chain,
        "leaf" => Self::Leaf,
    }
    RuleAction {
        "allow" => Self::Allow,
        "refuse" => Self::Refuse,
    }
    Scheme {
        "https" => Self::Https,
        "http" => Self::Http,
    }
    SendProxy {
        "off" => Self::Off,
        "v1" => Self::V1,
        "v2" => Self::V2,
    }
    SubjectRule {
        "puppet" => Self::Puppet,
        "single-cn" => Self::SingleCn,
    }
    ChangeDetection {
        "notify" => Self::Notify,
        "poll" => Self::Poll,
        "off" => Self::Off,
    }
}

impl Text for Format {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "combined" => Self::Combined,
            "json" => Self::Json,
            directives => Self::Apache(directives.parse().ok()?),
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Combined => "combined".to_owned(),
            Self::Json => "json".to_owned(),
            Self::Apache(format) => format.as_str().to_owned(),
        }
    }
}

impl Text for CrlExpired {
    fn parse(text: &str) -> Option<Self> {
        crl_expired::parse(text)
    }

    fn text(&self) -> String {
        crl_expired::show(*self)
    }
}

impl Text for AccessLogOutput {
    fn parse(text: &str) -> Option<Self> {
        Some(match (text, daemon(text)) {
            ("stdout", _) => Self::Stdout,
            (_, Some(daemon)) => Self::Daemon(daemon),
            (path, None) => Self::File(path.into()),
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Stdout => "stdout".into(),
            Self::File(path) => path.text(),
            Self::Daemon(daemon) => daemon_text(daemon),
        }
    }
}

impl Text for EventOutput {
    fn parse(text: &str) -> Option<Self> {
        Some(daemon(text).map_or(Self::Stderr, Self::Daemon))
    }

    fn text(&self) -> String {
        match self {
            Self::Stderr => "stderr".into(),
            Self::Daemon(daemon) => daemon_text(daemon),
        }
    }
}

/// Parses the name of a log daemon, with the default facility.
fn daemon(text: &str) -> Option<DaemonSettings> {
    let (kind, socket) = log_daemon(text)?;
    let protocol = match kind {
        "journal" => LogProtocol::Journal,
        _ => LogProtocol::Syslog(Facility::default()),
    };
    Some(DaemonSettings {
        protocol,
        socket: socket.unwrap_or_else(|| protocol.usual_socket()).into(),
    })
}

/// Formats a log daemon: `syslog`, or `syslog:/path` if its socket is not the default.
fn daemon_text(daemon: &DaemonSettings) -> String {
    let kind = match daemon.protocol {
        LogProtocol::Syslog(_) => "syslog",
        LogProtocol::Journal => "journal",
    };
    match daemon.socket.to_string_lossy() {
        socket if socket == daemon.protocol.usual_socket() => kind.into(),
        socket => format!("{kind}:{socket}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Word;

    #[test]
    fn facility_names_are_those_of_syslog() {
        assert_eq!(Facility::ALL.map(Facility::as_str), Facility::WORDS);
        for facility in Facility::ALL {
            assert_eq!(facility.word(), Some(facility.as_str()));
        }
    }

    #[test]
    fn algorithm_names_are_those_of_the_status() {
        for (word, algorithm) in Algorithm::VALUES {
            assert_eq!(*word, algorithm.as_str());
        }
    }
}
