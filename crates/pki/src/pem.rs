//! Parses PEM from named bytes: certificates, CRLs and keys. Error messages name the block.

use std::borrow::Cow;

use rustls_pki_types::pem::{Error, PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::{CLIENT_AUTH, SERVER_AUTH};
use crate::der::{self, DerError, Reader};
use crate::problem::PkiProblem;

/// A value with a name that the operator knows, usually a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    /// The name for messages.
    pub name: String,
    /// The value.
    pub value: T,
}

impl<T> Named<T> {
    /// Names a value.
    pub fn new(name: impl Into<String>, value: T) -> Self {
        Self {
            name: name.into(),
            value,
        }
    }
}

/// One DER block and its source.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The material's name.
    pub(crate) name: String,
    /// Counted from 1 over all blocks of the material.
    pub(crate) number: usize,
    pub(crate) der: Vec<u8>,
}

impl Block {
    /// The error for a block whose content does not match its label.
    pub(crate) fn malformed(&self, what: &'static str, why: impl ToString) -> PkiProblem {
        PkiProblem::Malformed {
            what,
            name: self.name.clone(),
            block: self.number,
            why: why.to_string(),
        }
    }

    /// `"a.pem" block 2`.
    pub(crate) fn place(&self) -> String {
        format!("\"{}\" block {}", self.name, self.number)
    }
}

/// All certificates of a file, in order.
///
/// # Errors
/// The file is not PEM, or contains no certificate.
pub(crate) fn certificates(material: &Named<Vec<u8>>) -> Result<Vec<Block>, PkiProblem> {
    let trusted = replaced(&material.value, b"TRUSTED CERTIFICATE", b"CERTIFICATE");
    let plain = replaced(
        trusted.as_ref().unwrap_or(&material.value),
        b"X509 CERTIFICATE",
        b"CERTIFICATE",
    );
    let is_trusted = trusted.is_some();
    let Some(value) = plain.or(trusted) else {
        return blocks("certificate", SectionKind::Certificate, material);
    };
    let material = Named::new(material.name.clone(), value);
    let mut found = blocks("certificate", SectionKind::Certificate, &material)?;
    for block in found.iter_mut().filter(|_| is_trusted) {
        let length =
            trusted_length(&block.der).map_err(|why| block.malformed("certificate", why))?;
        block.der.truncate(length);
    }
    Ok(found)
}

/// The text with another label in its blocks. None if no block has the first label.
fn replaced(text: &[u8], label: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let is_labelled = |line: &&[u8]| line.starts_with(b"-----") && contains(line, label);
    lines.iter().any(is_labelled).then(|| {
        let mut replaced = Vec::with_capacity(text.len());
        for line in lines {
            match line.windows(label.len()).position(|part| part == label) {
                Some(at) if is_labelled(&line) => {
                    replaced.extend_from_slice(&line[..at]);
                    replaced.extend_from_slice(other);
                    replaced.extend_from_slice(&line[at + label.len()..]);
                }
                _ => replaced.extend_from_slice(line),
            }
        }
        replaced
    })
}

/// The length of the certificate in a TRUSTED CERTIFICATE of OpenSSL. After the certificate, the block has the purposes for
/// which its owner trusts or rejects it (X509_CERT_AUX).
fn trusted_length(der: &[u8]) -> Result<usize, String> {
    let unreadable = |error: DerError| error.to_string();
    let mut whole = Reader::new(der);
    let length = whole.expect(der::SEQUENCE).map_err(unreadable)?.whole.len();
    let settings = whole.optional(der::SEQUENCE).map_err(unreadable)?;
    whole.end().map_err(unreadable)?;
    let mut settings = Reader::new(settings.map_or(&[], |settings| settings.value));
    let trusted = settings.optional(der::SEQUENCE).map_err(unreadable)?;
    let rejected = settings.optional(der::explicit(0)).map_err(unreadable)?;
    let trusted = trusted.map(|list| der::oids(list.value)).transpose();
    let trusted = trusted.map_err(unreadable)?;
    let rejected = der::oids(rejected.map_or(&[], |list| list.value)).map_err(unreadable)?;
    if rejected.iter().any(|oid| TLS_PURPOSES.contains(oid)) {
        return Err("its trust settings reject TLS (openssl x509 -addreject)".to_owned());
    }
    // The bundle verifies agents. It also verifies members, unless another bundle is configured for them.
    let [client, server, any] = TLS_PURPOSES;
    let allows_both = |trusted: Vec<&[u8]>| {
        trusted.contains(&any) || (trusted.contains(&client) && trusted.contains(&server))
    };
    if trusted.is_none_or(allows_both) {
        Ok(length)
    } else {
        Err(
            "its trust settings do not include both TLS clients and TLS servers (openssl x509 -addtrust clientAuth \
             -addtrust serverAuth)"
                .to_owned(),
        )
    }
}

/// clientAuth, serverAuth and anyExtendedKeyUsage.
const TLS_PURPOSES: [&[u8]; 3] = [CLIENT_AUTH, SERVER_AUTH, &[0x55, 0x1d, 37, 0]];

/// The text without byte order marks before its blocks. Editors and shells on Windows write these marks, and the PEM parser
/// would silently skip a block after one.
fn without_marks(text: &[u8]) -> Cow<'_, [u8]> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    let marked = [MARK, b"-----BEGIN "].concat();
    if !contains(text, &marked) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| {
        if line.starts_with(&marked) {
            &line[MARK.len()..]
        } else {
            line
        }
    });
    Cow::Owned(lines.collect::<Vec<_>>().concat())
}

/// All CRLs of a file, in order.
///
/// # Errors
/// The file is not PEM, or contains no CRL.
pub(crate) fn crls(material: &Named<Vec<u8>>) -> Result<Vec<Block>, PkiProblem> {
    blocks("CRL", SectionKind::Crl, material)
}

/// The first private key of a file: PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// The file is not PEM, or contains no key, or the key is encrypted. The proxy cannot ask for a password.
pub(crate) fn private_key(material: &Named<Vec<u8>>) -> Result<PrivateKeyDer<'static>, PkiProblem> {
    PrivateKeyDer::from_pem_slice(&without_marks(&material.value)).map_err(|error| match error {
        _ if is_encrypted_key(&material.value) => PkiProblem::UnusableKey {
            name: material.name.clone(),
            why: "it is encrypted; write it without a password (openssl pkey)".into(),
        },
        Error::NoItemsFound => empty("key", material),
        error => PkiProblem::NotPem {
            what: "key",
            name: material.name.clone(),
            why: in_words(&error).into(),
        },
    })
}

/// Whether a file contains a PEM CRL. It decides which files of a CRL directory are used, whatever their names.
#[must_use]
pub fn holds_crl(bytes: &[u8]) -> bool {
    contains(bytes, b"-----BEGIN X509 CRL-----")
}

/// Whether a file contains a PEM certificate.
#[must_use]
pub fn holds_certificate(bytes: &[u8]) -> bool {
    contains(bytes, b"-----BEGIN CERTIFICATE-----")
}

/// Whether a file contains a PEM private key of any kind.
#[must_use]
pub fn holds_key(bytes: &[u8]) -> bool {
    contains(bytes, b"PRIVATE KEY-----")
}

/// Whether the key is encrypted, as PKCS#8 or in OpenSSL's older format, whose header no PEM parser accepts.
fn is_encrypted_key(bytes: &[u8]) -> bool {
    contains(bytes, b"-----BEGIN ENCRYPTED PRIVATE KEY")
        || contains(bytes, b"Proc-Type: 4,ENCRYPTED")
}

/// The error for a file without any PEM block.
fn empty(what: &'static str, material: &Named<Vec<u8>>) -> PkiProblem {
    let name = material.name.clone();
    // The file is a DER SEQUENCE with a length of two or more octets, or one that starts with a version. No text file starts
    // with these bytes.
    match material.value.as_slice() {
        [0x30, 0x82, _, _, 0x02, 0x01, 0x03, ..] => PkiProblem::NotPem {
            what,
            why: format!(
                "it is PKCS#12; convert it with `openssl pkcs12 -in {name} -nodes -out FILE.pem`"
            ),
            name,
        },
        [0x30, 0x81..=0x84, ..] | [0x30, _, 0x02, 0x01, ..] => PkiProblem::NotPem {
            what,
            why: format!(
                "it is DER; convert it with `openssl {} -inform der -in {name} -out FILE.pem`",
                match what {
                    "key" => "pkey",
                    "CRL" => "crl",
                    _ => "x509",
                }
            ),
            name,
        },
        _ => PkiProblem::Empty { what, name },
    }
}

/// A certificate's DER as the type of rustls.
pub(crate) fn certificate_der(block: &Block) -> CertificateDer<'static> {
    CertificateDer::from(block.der.clone())
}

fn blocks(
    what: &'static str,
    wanted: SectionKind,
    material: &Named<Vec<u8>>,
) -> Result<Vec<Block>, PkiProblem> {
    let mut found = Vec::new();
    let text = without_marks(&material.value);
    for (index, section) in <(SectionKind, Vec<u8>)>::pem_slice_iter(&text).enumerate() {
        let (kind, der) = section.map_err(|error| PkiProblem::NotPem {
            what,
            name: material.name.clone(),
            why: format!("block {}: {}", index + 1, in_words(&error)),
        })?;
        if kind == wanted {
            found.push(Block {
                name: material.name.clone(),
                number: index + 1,
                der,
            });
        }
    }
    if found.is_empty() {
        return Err(empty(what, material));
    }
    Ok(found)
}

/// A description of the error without the parser's message, which quotes a line that may be part of a key.
fn in_words(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "its END line is missing",
        Error::IllegalSectionStart { .. } => "its BEGIN line is invalid",
        Error::Base64Decode(_) => "its base64 is invalid",
        _ => "it cannot be read",
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_another_form_is_named_with_its_conversion() {
        let encrypted = b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
            DEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let cases: [(&[u8], &str); 5] = [
            (
                &[0x30, 0x77, 0x02, 0x01, 0x01, 0x04],
                "openssl pkey -inform der",
            ),
            (
                &[0x30, 0x81, 0x87, 0x02, 0x01, 0x00],
                "openssl pkey -inform der",
            ),
            (
                &[0x30, 0x82, 0x0a, 0x00, 0x02, 0x01, 0x03],
                "openssl pkcs12 -in",
            ),
            (encrypted, "it is encrypted"),
            (b"text", "no key"),
        ];
        for (value, expected) in cases {
            let material = Named {
                name: "key.pem".into(),
                value: value.to_vec(),
            };
            let problem = private_key(&material)
                .expect_err("not a PEM key")
                .to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
