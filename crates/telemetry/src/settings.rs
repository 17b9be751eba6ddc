//! Settings of the access log and of log daemons.

use std::path::PathBuf;

pub use crate::log_format::{LogFormat, LogFormatError};

/// Form of an access record's line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Apache's combined log with the certname as user, followed by `key=value` fields. The default.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
    /// A format in the syntax of Apache's `LogFormat`.
    Apache(LogFormat),
}

/// `[access_log]`, without the file that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Form of a line. Default `combined`.
    pub format: Format,
    /// Number of records that may wait to be written. Further records are dropped and counted. Default 8192.
    pub queue_max: usize,
}

impl Default for AccessLogSettings {
    fn default() -> Self {
        Self {
            format: Format::Combined,
            queue_max: 8192,
        }
    }
}

/// A log daemon of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// The protocol that the daemon reads.
    pub protocol: LogProtocol,
    /// The path of its socket.
    pub socket: PathBuf,
}

/// The protocol of a log daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogProtocol {
    /// RFC 3164 as syslog(3) sends it.
    Syslog(Facility),
    /// The native protocol of systemd-journald.
    Journal,
}

impl LogProtocol {
    /// The default path of such a daemon's socket.
    pub fn usual_socket(self) -> &'static str {
        match self {
            Self::Syslog(_) => "/dev/log",
            Self::Journal => "/run/systemd/journal/socket",
        }
    }
}

/// The facility by which a syslog daemon sorts records (RFC 5424, table 1). Default `daemon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facility {
    word: &'static str,
    code: u8,
}

impl Facility {
    /// The facilities that a service may use, as `syslog.conf` spells them.
    pub const ALL: [Self; 12] = {
        const fn facility(word: &'static str, code: u8) -> Facility {
            Facility { word, code }
        }
        [
            facility("user", 1),
            facility("daemon", 3),
            facility("auth", 4),
            facility("authpriv", 10),
            facility("local0", 16),
            facility("local1", 17),
            facility("local2", 18),
            facility("local3", 19),
            facility("local4", 20),
            facility("local5", 21),
            facility("local6", 22),
            facility("local7", 23),
        ]
    };

    /// The facility with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|facility| facility.word == word)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        self.word
    }

    pub(crate) fn code(self) -> u8 {
        self.code
    }
}

impl Default for Facility {
    fn default() -> Self {
        Self::ALL[1]
    }
}
