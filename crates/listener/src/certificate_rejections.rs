//! Clients that call our certificate over or bad: their clock is wrong, as a rule, and nothing else shows it.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustls::AlertDescription;

/// How often a listener's certificates were not believed since it opened, and by whom last.
#[derive(Debug, Default)]
pub struct CertificateRejections {
    last: Mutex<Option<CertificateRejection>>,
}

/// Handshakes that ended so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateRejection {
    /// How many.
    pub times: u64,
    /// The last client.
    pub client: IpAddr,
    /// When it came.
    pub at: SystemTime,
    /// What it said: `certificate_expired` or `bad_certificate` (RFC 8446, 6.2).
    pub alert: &'static str,
}

impl CertificateRejections {
    /// Those that there were; none where everybody believed us.
    pub fn last(&self) -> Option<CertificateRejection> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a handshake that failed, if this is why.
    pub(crate) fn note(&self, client: IpAddr, error: &io::Error) {
        let Some(alert) = alert(error) else { return };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(CertificateRejection {
            times: last.map_or(0, |last| last.times).saturating_add(1),
            client,
            at: SystemTime::now(),
            alert,
        });
    }
}

/// What OpenSSL says of a certificate or list that is over, or not valid yet, by its own clock; the latter also of a
/// name that it did not ask for.
fn alert(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            Some("certificate_expired")
        }
        rustls::Error::AlertReceived(AlertDescription::BadCertificate) => Some("bad_certificate"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_who_does_not_believe_our_dates_counts() {
        let rejections = CertificateRejections::default();
        let client = IpAddr::from(Ipv4Addr::LOCALHOST);
        let ended_by = |alert| io::Error::other(rustls::Error::AlertReceived(alert));
        rejections.note(client, &ended_by(AlertDescription::UnknownCA));
        rejections.note(client, &io::Error::other("gone"));
        assert_eq!(rejections.last(), None);
        rejections.note(client, &ended_by(AlertDescription::BadCertificate));
        rejections.note(client, &ended_by(AlertDescription::CertificateExpired));
        let last = rejections.last().expect("two");
        assert_eq!((last.times, last.alert), (2, "certificate_expired"));
    }
}
