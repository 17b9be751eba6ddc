//! Checks the certificates and CRLs that a CA provides, before the proxy answers with a copy of them.

use rustls_pki_types::pem::{PemObject, SectionKind};

use crate::certificate::Certificate;
use crate::store::TrustStore;
use crate::strict_pem;

/// Why a copy may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaCertificatesError {
    /// The document is not PEM, or contains a block that is not a certificate.
    #[error("it is not PEM with certificates only")]
    Unreadable,
    /// The document contains no certificate.
    #[error("it contains no certificate")]
    Empty,
    /// The document contains a certificate that is not in the bundle.
    #[error("it contains a certificate that is not in the proxy's CA bundle: {0}")]
    Strange(String),
}

impl TrustStore {
    /// Checks the CA certificates that a CA provides. Each must be in the bundle, byte for byte, and there must be no other
    /// block. This is necessary because parsers skip text that they do not know, and agents accept a block that starts in the
    /// middle of a line.
    ///
    /// # Errors
    /// The first fault.
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
        found.then_some(()).ok_or(CaCertificatesError::Empty)
    }
}

/// Whether a document contains CRLs and no other block, for every PEM parser.
#[must_use]
pub fn holds_only_crls(pem: &[u8]) -> bool {
    strict_pem::has_only(pem, "X509 CRL")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "-----BEGIN X509 CRL-----\nAAA=\n-----END X509 CRL-----\n";

    #[test]
    fn documents_with_only_crls_have_each_block_on_its_own_lines() {
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
