//! A client with a verified certificate chain, read from its certificate.

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

/// Proof that a chain was verified, including revocation. It has no cost at run time.
///
/// The idea comes from `ClientCertVerified` in rustls: code that creates an [`Agent`] must show where the proof comes from.
#[derive(Clone, Copy, Debug)]
pub struct ChainVerified(());

impl ChainVerified {
    /// Asserts that the certificate's chain was verified against the active trust store.
    ///
    /// Only the verifier in `pki`, and tests that need an agent, may call this.
    pub fn assertion() -> Self {
        Self(())
    }
}

/// A verified agent.
#[derive(Clone, Debug)]
pub struct Agent {
    certname: Certname,
    dn: Box<str>,
    /// The subject as header values, in the formats that the configuration uses.
    formatted_dn: FormattedDn,
    serial: Box<str>,
    issuer: Box<str>,
    extensions: PuppetExtensions,
    leaf: Box<[u8]>,
    certificate: CertificateValues,
    /// How the certificate was verified, for the headers of RFC 9440 and Envoy. `None` if the verifier recorded no path.
    verified_path: Option<Box<VerifiedPath>>,
    /// Whether `explain` only assumes the agent. Such an agent never gets identity headers.
    assumed: bool,
}

#[derive(Clone, Debug, Default)]
struct FormattedDn {
    rfc2253: Option<HeaderValue>,
    openssl: Option<HeaderValue>,
    cn_last: Option<HeaderValue>,
}

impl Agent {
    /// Reads the agent from its certificate.
    ///
    /// # Errors
    /// Puppet servers read the subject in different ways under `settings.subject`. The caller must then refuse the client:
    /// leaving the header out is not enough.
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
        // Other readers could read such an extension as another type, with a value that these rules have not checked.
        let mut extensions = certificate.extensions().iter();
        if extensions.any(|extension| dotted_oid(extension.oid.as_bytes()).is_none()) {
            return Err(SubjectError::ExtensionType);
        }
        let subject = Subject::of(certificate.subject());
        let certname = certname(&subject, settings.subject)?;
        let dn = subject.formatted(DnFormat::Rfc2253)?;
        Ok(Self {
            formatted_dn: FormattedDn::of(&subject, &dn, settings)?,
            certname,
            dn: dn.into(),
            serial: serial(certificate.tbs_certificate.raw_serial()).into(),
            issuer: printable(&Subject::of(certificate.issuer()).rfc2253()).into(),
            extensions: PuppetExtensions::of(&certificate),
            leaf: leaf_der.into(),
            certificate: CertificateValues::default(),
            verified_path: None,
            assumed: false,
        })
    }

    /// An agent that `explain` assumes. Routing treats it as verified. [`crate::IdentityHeaders`] reports `NONE` for
    /// it, because no chain proves it.
    pub fn assumed(certname: Certname) -> Self {
        let dn = format!("CN={certname}");
        Self {
            formatted_dn: FormattedDn::default(),
            dn: dn.into(),
            certname,
            serial: "".into(),
            issuer: "".into(),
            extensions: PuppetExtensions::default(),
            leaf: Box::default(),
            certificate: CertificateValues::default(),
            verified_path: None,
            assumed: true,
        }
    }

    /// Adds further assumptions of `explain`: the issuer's name in RFC 2253, and extensions by dotted OID.
    #[must_use]
    pub fn assuming(self, issuer: Option<&str>, extensions: Vec<(String, String)>) -> Self {
        Self {
            issuer: issuer.unwrap_or_default().into(),
            extensions: PuppetExtensions::assumed(extensions),
            assumed: true,
            formatted_dn: FormattedDn::default(),
            ..self
        }
    }

    /// Adds the verified path: the SHA-256 of the agent's certificate, and the certificates between it and the trust anchor.
    /// The agent's issuer comes first.
    #[must_use]
    pub fn with_path(self, sha256: [u8; 32], intermediates: Arc<[Arc<[u8]>]>) -> Self {
        Self {
            verified_path: Some(Box::new(VerifiedPath::new(sha256, intermediates))),
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

    /// The subject in RFC 2253, in printable ASCII. Access records use it, and by default it is the value of `X-Client-DN`.
    pub fn dn(&self) -> &str {
        &self.dn
    }

    /// Serial number in upper-case hexadecimal.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The issuer of the certificate in RFC 2253, in printable ASCII. It does not distinguish two CAs with the same name.
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

    /// The certificate as a header value in `format`.
    pub(crate) fn certificate(&self, format: CertFormat) -> Option<&HeaderValue> {
        self.certificate.of(&self.leaf, format)
    }

    /// The header values of RFC 9440 and Envoy.
    pub(crate) fn certificate_headers(&self) -> Option<&CertificateHeaders> {
        Some(self.verified_path.as_ref()?.values(&self.leaf))
    }

    /// The subject as a header value in `format`. `None` if the settings did not name the format when the agent was created.
    pub(crate) fn dn_header(&self, format: DnFormat) -> Option<&HeaderValue> {
        match format {
            DnFormat::Rfc2253 => self.formatted_dn.rfc2253.as_ref(),
            DnFormat::OpenSsl => self.formatted_dn.openssl.as_ref(),
            DnFormat::CnLast => self.formatted_dn.cn_last.as_ref(),
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
        let formatted = |format| {
            if settings.dn_formats.contains(format) {
                value(&subject.formatted(format)?).map(Some)
            } else {
                Ok(None)
            }
        };
        Ok(Self {
            rfc2253: Some(value(rfc2253)?),
            openssl: formatted(DnFormat::OpenSsl)?,
            cn_last: formatted(DnFormat::CnLast)?,
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
