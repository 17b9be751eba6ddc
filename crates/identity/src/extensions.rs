//! Puppet's certificate extensions by name: trusted facts, private and authorisation extensions.

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::refusal::printable;

/// The Puppet extensions of one certificate, in the certificate's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PuppetExtensions(Vec<(Box<str>, Box<str>)>);

impl PuppetExtensions {
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let ours = certificate.extensions().iter().filter_map(|extension| {
            let oid = extension.oid.to_id_string();
            let name = extension_name(&oid)?;
            Some((name.into(), text(extension.value).into()))
        });
        Self(ours.collect())
    }

    /// Value of an extension by Puppet's name (`pp_role`), or by dotted OID where Puppet has no name for it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them grants rights at a Puppet server (1.3.6.1.4.1.34380.1.3.*).
    pub fn has_authorization(&self) -> bool {
        self.iter().any(|(name, _)| is_authorization_name(name))
    }
}

/// Names of the authorisation extensions (1.3.6.1.4.1.34380.1.3.*) that a certificate carries, `pp_cli_auth` say.
///
/// For judging a credential of our own: one that carries any must not be shown to a member. Empty also for what is
/// no certificate at all.
pub fn authorization_extensions(certificate_der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate_der) else {
        return Vec::new();
    };
    certificate
        .extensions()
        .iter()
        .map(|extension| extension.oid.to_id_string())
        .filter(|oid| below(oid, AUTHORIZATION).is_some() || oid == AUTHORIZATION)
        .map(|oid| extension_name(&oid).unwrap_or(oid))
        .collect()
}

/// Puppet's name of an OID of its own arc, the dotted OID where it has none, nothing for other OIDs.
pub fn extension_name(oid: &str) -> Option<String> {
    let arcs = [
        (REGISTERED, REGISTERED_NAMES),
        (AUTHORIZATION, AUTHORIZATION_NAMES),
    ];
    for (arc, names) in arcs {
        if let Some(name) = below(oid, arc).and_then(|leaf| named(names, leaf)) {
            return Some(name.to_owned());
        }
    }
    below(oid, PUPPET).map(|_| oid.to_owned())
}

fn named<'a>(names: &[(&str, &'a str)], leaf: &str) -> Option<&'a str> {
    names
        .iter()
        .find(|(number, _)| *number == leaf)
        .map(|(_, name)| *name)
}

/// The rest of `oid` below `arc`, if it is below.
fn below<'a>(oid: &'a str, arc: &str) -> Option<&'a str> {
    oid.strip_prefix(arc)?.strip_prefix('.')
}

fn is_authorization_name(name: &str) -> bool {
    AUTHORIZATION_NAMES.iter().any(|(_, known)| *known == name)
        || below(name, AUTHORIZATION).is_some()
}

/// The value as Puppet shows it: the text of a DER string, else the bytes as text (old agents wrote no DER).
fn text(value: &[u8]) -> String {
    let content = match value {
        // UTF8String, PrintableString, T61String, IA5String with a short length that is right.
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
