//! A strict parser of certificate requests (RFC 2986). Ambiguous input is an error.

use crate::certificate::{Extension, Signed};
use crate::der::{self, DerError, Element, Reader};

/// A certificate request that borrows its bytes.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The subject's Name, the whole element.
    pub(crate) subject: &'a [u8],
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    /// The signed bytes, the algorithm and the signature.
    pub(crate) signed: Signed<'a>,
    /// An extension below 1.3.6.1.4.1.34380.1.3.
    pub(crate) authorization: Option<String>,
    /// Requested names in addition to the subject.
    pub(crate) altnames: Vec<Altname<'a>>,
    /// Requested extensions that an agent does not need.
    pub(crate) others: Vec<CaOnlyRequest>,
}

/// A name of a subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Altname<'a> {
    Dns(&'a [u8]),
    /// A name of another kind, with its tag.
    Other(u8),
}

/// An extension that only a CA needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaOnlyRequest {
    CaCertificate,
    SigningUsage,
    CaExtension(String),
    CriticalExtension(String),
}

/// Why a request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("it is not a certificate request ({0})")]
    Der(#[from] DerError),
    #[error("its version is unknown")]
    Version,
    #[error("it has an invalid object identifier")]
    Oid,
    #[error("it has more than one attribute that requests extensions")]
    SeveralRequests,
    #[error("its attribute that requests extensions does not have exactly one value")]
    Values,
    #[error("it requests the extension {0} twice")]
    Twice(String),
    #[error("it requests more than {EXTENSIONS_MAX} extensions")]
    Many,
}

impl<'a> Request<'a> {
    pub(crate) fn read(der: &'a [u8]) -> Result<Self, RequestError> {
        let (info, signed) = Signed::read(der)?;
        let mut info = Reader::new(info);
        if info.expect(der::INTEGER)?.value != [0] {
            return Err(RequestError::Version);
        }
        let mut request = Self {
            subject: info.expect(der::SEQUENCE)?.whole,
            spki: info.expect(der::SEQUENCE)?.whole,
            signed,
            authorization: None,
            altnames: Vec::new(),
            others: Vec::new(),
        };
        check_name(request.subject)?;
        let attributes = info.optional(der::explicit(0))?;
        info.end()?;
        if let Some(extensions) = requested(attributes)? {
            request.read_extensions(extensions)?;
        }
        Ok(request)
    }

    fn read_extensions(&mut self, extensions: Element<'a>) -> Result<(), RequestError> {
        let mut list = Reader::new(extensions.value);
        let mut seen: Vec<&[u8]> = Vec::new();
        while !list.is_empty() {
            let extension = Extension::read(list.expect(der::SEQUENCE)?)?;
            let oid = dotted(extension.id)?;
            if seen.contains(&extension.id) {
                return Err(RequestError::Twice(oid));
            }
            if seen.len() == EXTENSIONS_MAX {
                return Err(RequestError::Many);
            }
            seen.push(extension.id);
            self.read_extension(extension, oid)?;
        }
        Ok(())
    }

    fn read_extension(
        &mut self,
        extension: Extension<'a>,
        oid: String,
    ) -> Result<(), RequestError> {
        match extension.id {
            id if id.starts_with(AUTHORIZATION) => {
                self.authorization.get_or_insert(oid);
            }
            id if id.starts_with(PUPPET) => {}
            SUBJECT_ALT_NAME => self.altnames = altnames(extension.value)?,
            BASIC_CONSTRAINTS if may_be_ca(extension.value)? => {
                self.others.push(CaOnlyRequest::CaCertificate)
            }
            KEY_USAGE if signs(extension.value)? => self.others.push(CaOnlyRequest::SigningUsage),
            BASIC_CONSTRAINTS | KEY_USAGE | EXTENDED_KEY_USAGE => {}
            id if OF_CAS.contains(&id) => self.others.push(CaOnlyRequest::CaExtension(oid)),
            _ if extension.critical => self.others.push(CaOnlyRequest::CriticalExtension(oid)),
            _ => {}
        }
        Ok(())
    }
}

/// The requested extensions, in the attribute of PKCS #9 or that of Microsoft. Only one such attribute with one value is
/// allowed, because servers differ in which of several they use. Other attributes are only for the CA and do not become part of
/// the certificate, for example pp_auth_auto_renew of Puppet 8 agents.
fn requested(attributes: Option<Element<'_>>) -> Result<Option<Element<'_>>, RequestError> {
    let mut attributes = Reader::new(attributes.map_or(&[], |attributes| attributes.value));
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = Reader::new(attributes.expect(der::SEQUENCE)?.value);
        let id = attribute.expect(der::OID)?.value;
        dotted(id)?;
        let mut values = Reader::new(attribute.expect(SET)?.value);
        attribute.end()?;
        if ![EXTENSION_REQUEST, MICROSOFT_EXTENSIONS].contains(&id) {
            continue;
        }
        if found.is_some() {
            return Err(RequestError::SeveralRequests);
        }
        if values.is_empty() {
            return Err(RequestError::Values);
        }
        found = Some(values.expect(der::SEQUENCE)?);
        values.end().map_err(|_| RequestError::Values)?;
    }
    Ok(found)
}

/// Checks that a Name is a sequence of sets of attributes, each with an OID in its only valid encoding. Otherwise
/// another parser might find a CN that this one does not.
fn check_name(name: &[u8]) -> Result<(), RequestError> {
    let mut rdns = Reader::new(Reader::new(name).expect(der::SEQUENCE)?.value);
    while !rdns.is_empty() {
        let mut rdn = Reader::new(rdns.expect(SET)?.value);
        while !rdn.is_empty() {
            let mut attribute = Reader::new(rdn.expect(der::SEQUENCE)?.value);
            dotted(attribute.expect(der::OID)?.value)?;
            attribute.any()?;
            attribute.end()?;
        }
    }
    Ok(())
}

fn altnames(value: &[u8]) -> Result<Vec<Altname<'_>>, RequestError> {
    let mut names = Reader::new(only(value)?.value);
    let mut found = Vec::new();
    while !names.is_empty() {
        let name = names.any()?;
        found.push(match name.tag {
            DNS_NAME => Altname::Dns(name.value),
            tag => Altname::Other(tag),
        });
    }
    Ok(found)
}

/// Whether basic constraints contain anything other than "not a CA".
fn may_be_ca(value: &[u8]) -> Result<bool, RequestError> {
    let mut constraints = Reader::new(only(value)?.value);
    let is_ca = match constraints.optional(der::BOOLEAN)? {
        Some(is_ca) => der::boolean(is_ca.value)?,
        None => false,
    };
    Ok(is_ca || !constraints.is_empty())
}

/// Whether a key usage includes keyCertSign or cRLSign.
fn signs(value: &[u8]) -> Result<bool, RequestError> {
    let mut usage = Reader::new(value);
    let bits = usage.expect(der::BIT_STRING)?.value;
    usage.end()?;
    let [unused @ 0..=7, bytes @ ..] = bits else {
        return Err(DerError::Value.into());
    };
    let cannot_be = *unused > 0 && bytes.is_empty();
    if cannot_be {
        Err(DerError::Value.into())
    } else {
        Ok(bytes.first().is_some_and(|first| first & 0b0000_0110 != 0))
    }
}

/// The single SEQUENCE in a value.
fn only(value: &[u8]) -> Result<Element<'_>, DerError> {
    let mut reader = Reader::new(value);
    let element = reader.expect(der::SEQUENCE)?;
    reader.end()?;
    Ok(element)
}

/// Accepts only the shortest encoding of an OID, because another encoding would evade a comparison of bytes.
fn dotted(oid: &[u8]) -> Result<String, RequestError> {
    identity::dotted_oid(oid).ok_or(RequestError::Oid)
}

/// Maximum number of extensions in a request. Puppet has names for 30 extensions, and hundreds would fit into 16 KiB.
const EXTENSIONS_MAX: usize = 256;

const SET: u8 = 0x31;
/// `[2] IMPLICIT IA5String`
const DNS_NAME: u8 = 0x82;

/// 1.3.6.1.4.1.34380.1
const PUPPET: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x8c, 0x4c, 0x01];
/// 1.3.6.1.4.1.34380.1.3
const AUTHORIZATION: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x8c, 0x4c, 0x01, 0x03];
/// 1.2.840.113549.1.9.14 (PKCS #9)
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// 1.3.6.1.4.1.311.2.1.14
const MICROSOFT_EXTENSIONS: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x01, 0x0e];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// Extensions by which a CA describes itself or the certificates that it signs: issuer names, name constraints, distribution
/// points, authority key, policies and authority information.
const OF_CAS: &[&[u8]] = &[
    &[0x55, 0x1d, 0x12],
    &[0x55, 0x1d, 0x1e],
    &[0x55, 0x1d, 0x1f],
    &[0x55, 0x1d, 0x23],
    &[0x55, 0x1d, 0x24],
    &[0x55, 0x1d, 0x36],
    &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x01],
];
