//! A client whose chain was verified, read from its certificate.

use std::sync::Arc;

use http::HeaderValue;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certificate_headers::{CertificateHeaders, VerifiedPath};
use crate::certificate_value::CertificateValues;
use crate::certname::Certname;
use crate::extensions::PuppetExtensions;
use crate::form::{CertFormat, DnFormat};
use crate::oid::dotted_oid;
use crate::refusal::printable;
use crate::settings::{IdentitySettings, SubjectRule};
use crate::subject::{Subject, is_whole, serial};
use crate::subject_error::SubjectError;

/// Proof that a chain was verified, revocation included. Costs nothing to carry.
///
/// The idea is rustls's `ClientCertVerified`: who wants to make an [`Agent`] has to say where the proof came from.
#[derive(Clone, Copy, Debug)]
pub struct ChainVerified(());

impl ChainVerified {
    /// Asserts that the chain of the certificate at hand was verified against the trust in force.
    ///
    /// Only the verifier in `pki` may call this, and tests that need an agent.
    pub fn assertion() -> Self {
        Self(())
    }
}

/// A verified agent.
#[derive(Clone, Debug)]
pub struct Agent {
    certname: Certname,
    dn: Box<str>,
    /// The subject in the formats that servers here are told it in; nothing in the others.
    told: FormattedDn,
    serial: Box<str>,
    issuer: Box<str>,
    extensions: PuppetExtensions,
    leaf: Box<[u8]>,
    certificate: CertificateValues,
    /// What RFC 9440's and Envoy's headers tell beside; none for an agent whose path nobody noted.
    proven: Option<Box<VerifiedPath>>,
    /// Made up to explain a decision; no header is ever made of it.
    assumed: bool,
}

#[derive(Clone, Debug, Default)]
struct FormattedDn {
    rfc2253: Option<HeaderValue>,
    openssl: Option<HeaderValue>,
    cn_last: Option<HeaderValue>,
}

impl Agent {
    /// Reads the agent out of its own certificate.
    ///
    /// # Errors
    /// If the subject is none that every Puppet server reads alike under `settings.subject`; the caller refuses the
    /// client then, it does not leave the header out.
    pub fn from_leaf(
        leaf_der: &[u8],
        settings: &IdentitySettings,
        _proof: ChainVerified,
    ) -> Result<Self, SubjectError> {
        let (_, certificate) =
            X509Certificate::from_der(leaf_der).map_err(|_| SubjectError::Unreadable)?;
        if !is_whole(certificate.subject()) {
            return Err(SubjectError::Partial);
        }
        // By whatever OID another reader takes it for, it would have a value there that rules here have not seen.
        let mut extensions = certificate.extensions().iter();
        if extensions.any(|extension| dotted_oid(extension.oid.as_bytes()).is_none()) {
            return Err(SubjectError::ExtensionType);
        }
        let subject = Subject::of(certificate.subject());
        let certname = certname(&subject, settings.subject)?;
        let dn = subject.told(DnFormat::Rfc2253)?;
        Ok(Self {
            told: FormattedDn::of(&subject, &dn, settings)?,
            certname,
            dn: dn.into(),
            serial: serial(certificate.tbs_certificate.raw_serial()).into(),
            issuer: printable(&Subject::of(certificate.issuer()).rfc2253()).into(),
            extensions: PuppetExtensions::of(&certificate),
            leaf: leaf_der.into(),
            certificate: CertificateValues::default(),
            proven: None,
            assumed: false,
        })
    }

    /// An agent that `explain` takes for granted. Routing treats it as verified; [`crate::IdentityHeaders`] says
    /// `NONE` of it, because no chain proves it.
    pub fn assumed(certname: Certname) -> Self {
        let dn = format!("CN={certname}");
        Self {
            told: FormattedDn::default(),
            dn: dn.into(),
            certname,
            serial: "".into(),
            issuer: "".into(),
            extensions: PuppetExtensions::default(),
            leaf: Box::default(),
            certificate: CertificateValues::default(),
            proven: None,
            assumed: true,
        }
    }

    /// The same with what else `explain` takes for granted: the issuer's name by RFC 2253, and extensions by dotted OID.
    #[must_use]
    pub fn assuming(self, issuer: Option<&str>, extensions: Vec<(String, String)>) -> Self {
        Self {
            issuer: issuer.unwrap_or_default().into(),
            extensions: PuppetExtensions::assumed(extensions),
            assumed: true,
            told: FormattedDn::default(),
            ..self
        }
    }

    /// The same with the path on which it was verified: the SHA-256 of its certificate, and the certificates between it
    /// and the anchor, the agent's issuer first.
    #[must_use]
    pub fn with_path(self, sha256: [u8; 32], intermediates: Arc<[Arc<[u8]>]>) -> Self {
        Self {
            proven: Some(Box::new(VerifiedPath::new(sha256, intermediates))),
            ..self
        }
    }

    pub(crate) fn is_assumed(&self) -> bool {
        self.assumed
    }

    /// Puppet's name for the agent.
    pub fn certname(&self) -> &Certname {
        &self.certname
    }

    /// The subject by RFC 2253, as records name it and as `X-Client-DN` carries it by default: printable ASCII.
    pub fn dn(&self) -> &str {
        &self.dn
    }

    /// Serial number in upper-case hexadecimal.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Who signed the certificate, by RFC 2253: printable ASCII. Two authorities of one name are not told apart by it.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Puppet's extensions by name.
    pub fn extensions(&self) -> &PuppetExtensions {
        &self.extensions
    }

    /// Whether the certificate grants rights at a Puppet server (1.3.6.1.4.1.34380.1.3.*).
    pub fn has_authorization_extension(&self) -> bool {
        self.extensions.has_authorization()
    }

    /// The certificate that was verified, in DER.
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// The certificate as a header's value, for servers that read `format`.
    pub(crate) fn certificate(&self, format: CertFormat) -> Option<&HeaderValue> {
        self.certificate.of(&self.leaf, format)
    }

    /// The values of RFC 9440's and Envoy's headers.
    pub(crate) fn others(&self) -> Option<&CertificateHeaders> {
        Some(self.proven.as_ref()?.values(&self.leaf))
    }

    /// The subject for servers that read `format`; nothing if the settings did not name it when the agent was judged.
    pub(crate) fn told(&self, format: DnFormat) -> Option<&HeaderValue> {
        match format {
            DnFormat::Rfc2253 => self.told.rfc2253.as_ref(),
            DnFormat::OpenSsl => self.told.openssl.as_ref(),
            DnFormat::CnLast => self.told.cn_last.as_ref(),
        }
    }
}

impl FormattedDn {
    fn of(
        subject: &Subject,
        rfc2253: &str,
        settings: &IdentitySettings,
    ) -> Result<Self, SubjectError> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| SubjectError::Control);
        let told = |format| match settings.dn_formats.contains(format) {
            true => value(&subject.told(format)?).map(Some),
            false => Ok(None),
        };
        Ok(Self {
            rfc2253: Some(value(rfc2253)?),
            openssl: told(DnFormat::OpenSsl)?,
            cn_last: told(DnFormat::CnLast)?,
        })
    }
}

fn certname(subject: &Subject, rule: SubjectRule) -> Result<Certname, SubjectError> {
    let cn = subject.single_cn()?;
    match rule {
        SubjectRule::Puppet if subject.rdn_count() != 1 => {
            Err(SubjectError::MoreThanCn(subject.rdn_count()))
        }
        SubjectRule::Puppet => Certname::parse_puppet(cn).map_err(SubjectError::Certname),
        SubjectRule::SingleCn => Certname::parse(cn).map_err(SubjectError::Certname),
    }
}
