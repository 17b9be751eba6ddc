//! Whether what a CA gives out as its own certificates may be handed on in its place.

use rustls_pki_types::pem::{PemObject, SectionKind};

use crate::certificate::Certificate;
use crate::store::TrustStore;
use crate::strict_pem;

/// Why it may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaCertificatesError {
    /// It is not PEM, or has something else than certificates.
    #[error("it is not PEM with certificates only")]
    Unreadable,
    /// It has none.
    #[error("it contains no certificate")]
    Empty,
    /// It has one that is not trusted here.
    #[error("it contains a certificate that is not in the proxy's CA bundle: {0}")]
    Strange(String),
}

impl TrustStore {
    /// Holds certificates that a CA gives out against the bundle: each has to be in it, byte for byte, and no other
    /// block may stand there. Readers of PEM skip what they do not know, and agents find a block in the middle of a line.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check_cas(&self, pem: &[u8]) -> Result<(), CaCertificatesError> {
        if !strict_pem::has_only(pem, "CERTIFICATE") {
            return Err(CaCertificatesError::Unreadable);
        }
        let mut found = false;
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let Ok((SectionKind::Certificate, der)) = section else {
                return Err(CaCertificatesError::Unreadable);
            };
            let mut cas = self.anchors.bundle.cas.iter();
            if !cas.any(|ca| *ca.der == *der) {
                let described = Certificate::read(&der).map(|ca| ca.describe());
                return Err(described.map_or(
                    CaCertificatesError::Unreadable,
                    CaCertificatesError::Strange,
                ));
            }
            found = true;
        }
        match found {
            true => Ok(()),
            false => Err(CaCertificatesError::Empty),
        }
    }
}

/// Whether a text that a CA gives out has revocation lists and no other block, for any reader of PEM.
#[must_use]
pub fn holds_only_crls(pem: &[u8]) -> bool {
    strict_pem::has_only(pem, "X509 CRL")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "-----BEGIN X509 CRL-----\nAAA=\n-----END X509 CRL-----\n";

    #[test]
    fn lists_alone_are_lines_of_blocks_for_every_reader() {
        for good in [
            LIST.to_owned(),
            format!("\n{LIST}\r\n  \n{LIST}"),
            LIST.replace('\n', "\r\n"),
            LIST.trim_end().to_owned(),
            format!("text\n{LIST}- text\n"),
        ] {
            assert!(holds_only_crls(good.as_bytes()), "{good:?}");
        }
        for bad in [
            format!(" {LIST}"),
            format!("x{LIST}{LIST}"),
            format!("text\n -----{LIST}"),
            format!("{LIST}-----BEGIN"),
            LIST.trim_end().repeat(2),
            LIST.replace("AAA=", "AAA= "),
            LIST.replace("AAA=", "AAA=\rAAA="),
            LIST.replace("X509 CRL", "CERTIFICATE"),
            LIST.replace("-----END X509 CRL-----\n", ""),
            LIST.replace('\n', "\r"),
            LIST.replace("BEGIN X509 CRL-----", "BEGIN X509 CRL----- "),
        ] {
            assert!(!holds_only_crls(bad.as_bytes()), "{bad:?}");
        }
    }
}
