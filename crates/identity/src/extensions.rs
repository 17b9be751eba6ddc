//! The extensions of a certificate: Puppet's trusted facts, its private and authorization extensions, and those of other
//! vendors.

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certname::run_matches;
use crate::oid::in_dots;
use crate::refusal::printable;

/// The extensions of one certificate, except those of X.509 itself, in the certificate's order. The size of a handshake
/// limits their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PuppetExtensions(Vec<Extension>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Extension {
    oid: Box<str>,
    /// The value as Puppet shows it.
    shown: Box<str>,
    /// Whether all readers read the value as the string in `shown`.
    plain: bool,
}

/// The value that a certificate has for one OID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionValue<'a> {
    /// The certificate has no such extension.
    Absent,
    /// A string that all readers decode alike.
    Text(&'a str),
    /// Any other value: a string type that readers decode differently, malformed DER, control characters, more than
    /// [`PuppetExtensions::VALUE_BYTES_MAX`] bytes, or an extension that occurs twice.
    Unreadable,
}

impl PuppetExtensions {
    /// Maximum bytes of a value that rules compare. Trusted facts are short words.
    pub const VALUE_BYTES_MAX: usize = 1024;

    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let others = certificate.extensions().iter().filter_map(|extension| {
            let oid = in_dots(&extension.oid);
            (!is_of_x509(&oid)).then(|| Extension::of(oid, extension.value))
        });
        Self(others.collect())
    }

    /// The value of the extension with Puppet's name (`pp_role`), or with this dotted OID if Puppet has no name for it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Names and values of Puppet's extensions, as Puppet shows them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|extension| {
            let name = puppet_name(&extension.oid)?;
            Some((name, &*extension.shown))
        })
    }

    /// The value of the extension with this dotted OID, in Puppet's arc or another one.
    pub fn value(&self, oid: &str) -> ExtensionValue<'_> {
        let mut found = self.0.iter().filter(|extension| *extension.oid == *oid);
        match (found.next(), found.next()) {
            (None, _) => ExtensionValue::Absent,
            (Some(extension), None) if extension.plain => ExtensionValue::Text(&extension.shown),
            // If an extension occurs twice, some readers use the first, some use the last, and some use both.
            _ => ExtensionValue::Unreadable,
        }
    }

    /// Whether the certificate has none of Puppet's extensions.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether an extension grants rights at a Puppet server (1.3.6.1.4.1.34380.1.3.*).
    pub fn has_authorization(&self) -> bool {
        let mut all = self.0.iter();
        all.any(|extension| is_authorization_oid(&extension.oid))
    }

    /// The extensions that `explain` assumes, given as OIDs and strings.
    pub(crate) fn assumed(values: Vec<(String, String)>) -> Self {
        let assumed = values.into_iter().map(|(oid, text)| Extension {
            plain: is_plain(&text),
            oid: oid.into(),
            shown: text.into(),
        });
        Self(assumed.collect())
    }
}

impl Extension {
    fn of(oid: String, value: &[u8]) -> Self {
        let plain = string(value).filter(|text| is_plain(text));
        Self {
            oid: oid.into(),
            plain: plain.is_some(),
            shown: plain.map_or_else(|| text(value).into(), Into::into),
        }
    }
}

/// The dotted OID of a name in Puppet's table (`pp_role`).
pub fn extension_oid(name: &str) -> Option<String> {
    let tables = [
        (REGISTERED, REGISTERED_NAMES),
        (AUTHORIZATION, AUTHORIZATION_NAMES),
    ];
    tables.into_iter().find_map(|(arc, names)| {
        let (leaf, _) = names.iter().find(|(_, known)| *known == name)?;
        Some(format!("{arc}.{leaf}"))
    })
}

/// Whether an OID is one of Puppet's authorization extensions (1.3.6.1.4.1.34380.1.3.*). `[csr]` does not allow agents to
/// request them.
pub fn is_authorization_oid(oid: &str) -> bool {
    oid == AUTHORIZATION || below(oid, AUTHORIZATION).is_some()
}

/// All names in Puppet's table.
pub fn extension_names() -> impl Iterator<Item = &'static str> {
    let names = REGISTERED_NAMES.iter().chain(AUTHORIZATION_NAMES);
    names.map(|(_, name)| *name)
}

/// Whether a string is a dotted OID whose value rules can compare. OIDs of X.509's own extensions are excluded, because their
/// values are not strings.
pub fn is_extension_oid(text: &str) -> bool {
    let number = |part: &str| {
        let is_shortest = part == "0" || part.starts_with(|first| matches!(first, '1'..='9'));
        part.parse::<u128>().ok().filter(|_| is_shortest)
    };
    let arcs: Option<Vec<u128>> = text.split('.').map(number).collect();
    let begins = match arcs.as_deref() {
        Some([0 | 1, second, ..]) => *second < 40,
        Some([2, _, ..]) => true,
        _ => false,
    };
    begins && text.split('.').count() <= ARCS_MAX && !is_of_x509(text)
}

/// A pattern for the whole value of an extension. `*` matches any characters, and case matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePattern(Box<str>);

impl ValuePattern {
    /// Parses a pattern. `None` if no value could match, because the pattern is too long or contains a control character.
    pub fn parse(text: &str) -> Option<Self> {
        is_plain(text).then(|| Self(text.into()))
    }

    /// Whether the pattern matches the whole of `value`.
    pub fn matches(&self, value: &str) -> bool {
        run_matches(self.0.as_bytes(), value.as_bytes(), |one, other| {
            one == other
        })
    }
}

/// Names of the authorization extensions (1.3.6.1.4.1.34380.1.3.*) of a certificate, such as `pp_cli_auth`.
///
/// The proxy must not present a certificate with one of them to a member. Empty if the bytes are not a certificate.
pub fn authorization_extensions(certificate_der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate_der) else {
        return Vec::new();
    };
    certificate
        .extensions()
        .iter()
        .map(|extension| in_dots(&extension.oid))
        .filter(|oid| is_authorization_oid(oid))
        .map(|oid| puppet_name(&oid).unwrap_or(&oid).to_owned())
        .collect()
}

/// Puppet's name of an OID in its own arc, or the dotted OID if Puppet has no name for it. `None` for other OIDs.
pub fn extension_name(oid: &str) -> Option<String> {
    puppet_name(oid).map(ToOwned::to_owned)
}

fn puppet_name(oid: &str) -> Option<&str> {
    let arcs = [
        (REGISTERED, REGISTERED_NAMES),
        (AUTHORIZATION, AUTHORIZATION_NAMES),
    ];
    for (arc, names) in arcs {
        if let Some(name) = below(oid, arc).and_then(|leaf| named(names, leaf)) {
            return Some(name);
        }
    }
    below(oid, PUPPET).map(|_| oid)
}

/// Maximum number of parts of an OID in a rule.
const ARCS_MAX: usize = 64;

/// Whether an OID belongs to X.509 itself, or is Netscape's comment, which Puppet adds to every certificate.
fn is_of_x509(oid: &str) -> bool {
    let arcs = ["2.5.29", "1.3.6.1.5.5.7", "2.16.840.1.113730"];
    arcs.into_iter().any(|arc| below(oid, arc).is_some())
}

fn named<'a>(names: &[(&str, &'a str)], leaf: &str) -> Option<&'a str> {
    names
        .iter()
        .find(|(number, _)| *number == leaf)
        .map(|(_, name)| *name)
}

/// The part of `oid` after `arc`. `None` if `oid` is not below that arc.
fn below<'a>(oid: &'a str, arc: &str) -> Option<&'a str> {
    oid.strip_prefix(arc)?.strip_prefix('.')
}

/// The characters of a DER string that fills the whole value, if all readers decode its type alike. Ruby and Java differ in
/// T61String and BMPString. They also differ in whether malformed DER is an error or a string.
fn string(value: &[u8]) -> Option<&str> {
    let [tag, rest @ ..] = value else { return None };
    let content = match rest {
        [length @ 0x00..=0x7f, content @ ..] if usize::from(*length) == content.len() => content,
        [0x81, length @ 0x80..=0xff, content @ ..] if usize::from(*length) == content.len() => {
            content
        }
        [0x82, high @ 1..=0xff, low, content @ ..]
            if usize::from(*high) << 8 | usize::from(*low) == content.len() =>
        {
            content
        }
        _ => return None,
    };
    let text = std::str::from_utf8(content).ok()?;
    match *tag {
        UTF8_STRING => Some(text),
        NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => {
            text.is_ascii().then_some(text)
        }
        _ => None,
    }
}

fn is_plain(text: &str) -> bool {
    text.len() <= PuppetExtensions::VALUE_BYTES_MAX && !text.contains(char::is_control)
}

/// The value as Puppet shows it: the characters of a DER string, or otherwise the bytes themselves, because old agents wrote no
/// DER.
fn text(value: &[u8]) -> String {
    let content = match value {
        // UTF8String, PrintableString, T61String or IA5String with a correct short length.
        [0x0c | 0x13 | 0x14 | 0x16, length, rest @ ..]
            if usize::from(*length) == rest.len() && *length < 0x80 =>
        {
            rest
        }
        [0x0c | 0x13 | 0x14 | 0x16, 0x81, length, rest @ ..]
            if usize::from(*length) == rest.len() =>
        {
            rest
        }
        [0x0c | 0x13 | 0x14 | 0x16, 0x82, high, low, rest @ ..]
            if usize::from(*high) << 8 | usize::from(*low) == rest.len() =>
        {
            rest
        }
        other => other,
    };
    String::from_utf8(content.to_vec())
        .unwrap_or_else(|_| printable(&String::from_utf8_lossy(content)))
}

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;

const PUPPET: &str = "1.3.6.1.4.1.34380.1";
const REGISTERED: &str = "1.3.6.1.4.1.34380.1.1";
const AUTHORIZATION: &str = "1.3.6.1.4.1.34380.1.3";

const REGISTERED_NAMES: &[(&str, &str)] = &[
    ("1", "pp_uuid"),
    ("2", "pp_instance_id"),
    ("3", "pp_image_name"),
    ("4", "pp_preshared_key"),
    ("5", "pp_cost_center"),
    ("6", "pp_product"),
    ("7", "pp_project"),
    ("8", "pp_application"),
    ("9", "pp_service"),
    ("10", "pp_employee"),
    ("11", "pp_created_by"),
    ("12", "pp_environment"),
    ("13", "pp_role"),
    ("14", "pp_software_version"),
    ("15", "pp_department"),
    ("16", "pp_cluster"),
    ("17", "pp_provisioner"),
    ("18", "pp_region"),
    ("19", "pp_datacenter"),
    ("20", "pp_zone"),
    ("21", "pp_network"),
    ("22", "pp_securitypolicy"),
    ("23", "pp_cloudplatform"),
    ("24", "pp_apptier"),
    ("25", "pp_hostname"),
    ("26", "pp_owner"),
];

const AUTHORIZATION_NAMES: &[(&str, &str)] = &[
    ("1", "pp_authorization"),
    ("2", "pp_auth_auto_renew"),
    ("13", "pp_auth_role"),
    ("39", "pp_cli_auth"),
];

#[cfg(test)]
mod tests;
