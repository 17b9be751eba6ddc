//! The certificate that Puppet Server's CA renews: `certificate_renewal` in its versions.

use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{Recorded, Shared, lock};
use crate::{readers, reply::Reply};

/// How a CA finds the certificate to renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewing {
    /// The CA has no such endpoint, as in Puppet Server up to 7.
    Unknown,
    /// With `allow-header-cert-info: true`, in every version: the certificate in `X-Client-Cert`, whichever CA signed
    /// it.
    Header,
    /// Without that setting, before 8.2.1: the certificate of the TLS peer, whatever a header contains.
    Peer,
    /// Without that setting, since 8.2.1: without the header, the certificate of the TLS peer. With it, the certificate
    /// in the header, if the peer's name is in `infra_inventory.txt`, which has these names.
    Inventory(Vec<String>),
}

impl Shared {
    pub(super) fn certificate_renewal(&self, request: &Recorded) -> Option<Reply> {
        let ca = self.ca.as_ref()?;
        let header = match readers::escaped_certificate(&request.headers) {
            Ok(header) => header,
            Err(_) => return Some(refusal(400, "No or several certificates in the header")),
        };
        let peer = request.peer_certificates.first().cloned();
        let renewing = lock(&self.renewing).clone();
        let chosen = match (&renewing, header, peer) {
            (Renewing::Unknown, _, _) => return None,
            (Renewing::Header, header, _) => header,
            (Renewing::Peer, _, peer) | (Renewing::Inventory(_), None, peer) => peer,
            (Renewing::Inventory(names), Some(header), Some(peer)) => {
                if !common_name(&peer).is_some_and(|name| names.contains(&name)) {
                    return Some(refusal(400, "The peer is not in the infra inventory"));
                }
                Some(header)
            }
            (Renewing::Inventory(_), Some(_), None) => None,
        };
        let Some(chosen) = chosen else {
            return Some(refusal(403, "Forbidden request"));
        };
        // Signatures are not verified, as in the real CA, which only compares the key identifier of the issuer.
        Some(match ca.renew(&chosen) {
            Ok(renewed) => Reply::ok(&renewed.cert_pem),
            Err(error) => refusal(500, &error.to_string()),
        })
    }
}

fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

fn refusal(status: u16, text: &str) -> Reply {
    Reply::status(status)
        .header("Content-Type", "text/plain")
        .body(text.as_bytes())
}
