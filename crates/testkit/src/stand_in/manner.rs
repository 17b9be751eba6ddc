//! How a real Puppet Server treats unknown clients, for tests that select this.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::Recorded;
use crate::{readers, reply::Reply};

/// How a stand-in identifies clients, and which clients it refuses. By default a stand-in serves every client.
#[derive(Clone, Debug)]
pub struct Manner {
    believes: Believes,
    clock_ahead: i64,
    head_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Believes {
    Headers,
    Peer,
}

impl Manner {
    /// A compiler with `allow-header-cert-info: true`, which trusts the headers of every client that can connect.
    pub fn headers() -> Self {
        Self {
            believes: Believes::Headers,
            clock_ahead: 0,
            head_bytes_max: JETTY_HEAD_BYTES_MAX,
        }
    }

    /// A server as installed, which uses the certificate of the connection and ignores headers.
    pub fn peer() -> Self {
        Self {
            believes: Believes::Peer,
            ..Self::headers()
        }
    }

    /// Sets the server's clock ahead by this number of seconds.
    pub fn clock_ahead(mut self, seconds: i64) -> Self {
        self.clock_ahead = seconds;
        self
    }

    /// Sets the maximum size of a head, in bytes.
    pub fn head_bytes_max(mut self, bytes: usize) -> Self {
        self.head_bytes_max = bytes;
        self
    }

    /// The refusal of a request; `None` if the server serves it.
    pub(super) fn refusal(&self, request: &Recorded) -> Option<Reply> {
        if request.raw.len() > self.head_bytes_max {
            return Some(Reply::status(431));
        }
        let Ok(client) = self.client(request) else {
            return Some(Reply::status(400));
        };
        let segments: Vec<&str> = request.path().split('/').skip(1).collect();
        let allowed = match segments.as_slice() {
            ["status", ..]
            | ["puppet-ca", "v1", "certificate" | "certificate_request", _]
            | ["puppet-ca", "v1", "certificate_revocation_list", "ca"] => true,
            ["puppet-ca", ..] => false,
            [
                "puppet",
                "v3",
                "catalog" | "node" | "report" | "facts",
                name,
            ] => client.as_deref() == Some(*name),
            _ => client.is_some(),
        };
        (!allowed).then(|| {
            let text = format!("Forbidden request: {}", request.path());
            Reply::status(403).body(text.as_bytes())
        })
    }

    /// Adds the time of the server's clock to a response.
    pub(super) fn dated(&self, reply: Reply) -> Reply {
        let now = OffsetDateTime::from(SystemTime::now());
        let now = match self.clock_ahead {
            ahead @ 0.. => now + Duration::from_secs(ahead.unsigned_abs()),
            behind => now - Duration::from_secs(behind.unsigned_abs()),
        };
        reply.header("Date", &http_date(now))
    }

    fn client(&self, request: &Recorded) -> Result<Option<String>, readers::Broken> {
        match self.believes {
            Believes::Headers => {
                let reading = readers::puppet_server(&request.headers)?;
                readers::escaped_certificate(&request.headers)?;
                Ok(reading.name.filter(|_| reading.authenticated))
            }
            Believes::Peer => Ok(request.peer_certificates.first().and_then(|der| {
                let (_, certificate) = X509Certificate::from_der(der).ok()?;
                let name = certificate.subject().iter_common_name().next()?;
                Some(name.as_str().ok()?.to_owned())
            })),
        }
    }
}

/// IMF-fixdate (RFC 9110, 5.6.7).
fn http_date(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let short = |name: String| name.chars().take(3).collect::<String>();
    format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        short(at.weekday().to_string()),
        at.day(),
        short(at.month().to_string()),
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

const JETTY_HEAD_BYTES_MAX: usize = 8192;
