//! Clients that reject the listener's certificate as expired or bad. Usually their clock is wrong, and no other symptom shows
//! that.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustls::AlertDescription;

/// Counts how often clients rejected a certificate of a listener since it opened.
#[derive(Debug, Default)]
pub struct CertificateRejections {
    last: Mutex<Option<CertificateRejection>>,
}

/// The rejections so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateRejection {
    /// How many handshakes ended in this way.
    pub times: u64,
    /// The last client.
    pub client: IpAddr,
    /// When it connected.
    pub at: SystemTime,
    /// Its TLS alert: `certificate_expired` or `bad_certificate` (RFC 8446, 6.2).
    pub alert: &'static str,
}

impl CertificateRejections {
    /// The rejections so far, with the last client. `None` if there were none.
    pub fn last(&self) -> Option<CertificateRejection> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failed handshake if the client rejected the certificate.
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

/// The alerts that OpenSSL sends for a certificate or CRL that has expired or is not valid yet by the client's clock.
/// `bad_certificate` may also mean that the certificate has a name that the client did not expect.
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
    fn only_clients_that_reject_the_certificates_dates_count() {
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
