//! Set-up of the tests about the form of identity headers.

use testkit::{Attribute, Headers, TestCredential};

use crate::support::{
    Estate, EstateBuilder,
    readers::{Broken, Reading},
};

/// A path that any verified client may request.
pub(crate) const FILES: &str = "/puppet/v3/file_metadata/modules/a/b";
/// A mark that every forged value contains and no other value does.
pub(crate) const MARK: &str = "forged";
pub(crate) const UTF8: u8 = 0x0c;
pub(crate) const CN: &str = "2.5.4.3";
pub(crate) const O: &str = "2.5.4.10";
pub(crate) const EMAIL: &str = "1.2.840.113549.1.9.1";

pub(crate) type CertificateReader = fn(&Headers) -> Result<Option<Vec<u8>>, Broken>;

/// A server of the table, with the settings of its `puppet.conf`.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// The lines of `[pools.compilers.identity]` for it.
    pub(crate) identity: &'static str,
    pub(crate) read: fn(&Headers) -> Result<Reading, Broken>,
    pub(crate) certificate: Option<CertificateReader>,
    /// Whether the server reads subjects that have more than the CN.
    pub(crate) reads_more: bool,
}

/// An estate whose compilers get headers in this form, and whose CA server gets the default form.
pub(crate) fn identity_estate(identity: &str, subject: &str) -> EstateBuilder {
    Estate::builder()
        .compilers(1)
        .compiler_pool("forward_cert = true")
        .with(&format!("[identity]\nsubject = {subject:?}"))
        .with(&format!("[pools.compilers.identity]\n{identity}"))
}

pub(crate) fn utf8(kind: &str, value: &str) -> Attribute {
    (kind.to_owned(), UTF8, value.as_bytes().to_vec())
}

/// The headers that a compiler gets for this agent.
#[track_caller]
pub(crate) fn forwarded(estate: &Estate, agent: &TestCredential) -> Headers {
    estate.forget();
    let response = estate.client(agent).get(FILES);
    assert_eq!(response.status, 200, "{response:?}");
    estate.only_request().headers
}

#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) rdns: Vec<Vec<Attribute>>,
}

impl Subject {
    /// The CN of an accepted subject, which has exactly one.
    pub(crate) fn only_cn(&self) -> String {
        let mut cns = self.rdns.iter().flatten().filter(|(kind, ..)| kind == CN);
        let (_, tag, value) = cns.next().expect("accepted with a CN");
        assert!(cns.next().is_none(), "accepted with several: {self:?}");
        match tag {
            0x1e => value
                .iter()
                .skip(1)
                .step_by(2)
                .map(|byte| char::from(*byte))
                .collect(),
            _ => String::from_utf8(value.clone()).expect("accepted as text"),
        }
    }

    /// Whether each reader of this format must be able to read the subject.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".- ".contains(byte);
        let known = |kind: &str| [CN, O, "2.5.4.11", EMAIL].contains(&kind);
        let cns = self
            .rdns
            .iter()
            .flatten()
            .filter(|(kind, ..)| kind == CN)
            .count();
        cns == 1
            && self.rdns.iter().all(|rdn| rdn.len() == 1)
            && self.rdns.iter().flatten().all(|(kind, tag, value)| {
                *tag == UTF8
                    && known(kind)
                    && !value.is_empty()
                    && value.trim_ascii() == value
                    && value.iter().all(plain)
            })
    }
}

/// The spellings that one server or another reads as the same name.
pub(crate) fn spellings(name: &str) -> [String; 6] {
    [
        name.to_owned(),
        name.to_ascii_lowercase(),
        name.to_ascii_uppercase(),
        name.replace('-', "_"),
        name.replace('-', "."),
        format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")),
    ]
}
