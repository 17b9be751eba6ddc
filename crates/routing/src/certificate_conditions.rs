//! Conditions on a verified certificate: certname, issuer and extensions.
//!
//! Rules and routes share them. Without a verified chain, no condition matches.

use identity::{
    Agent, CertnamePattern, ExtensionValue, ValuePattern, extension_oid, is_extension_oid,
};

use crate::problem::valid;

/// A value that an extension of the certificate must have.
#[derive(Debug)]
pub(crate) struct ExtensionCondition {
    oid: String,
    value: ValuePattern,
}

impl ExtensionCondition {
    /// Reads pairs of a name and a pattern, and reports invalid ones.
    pub(crate) fn all(
        pairs: &[(String, String)],
        own: &[(String, String)],
        report: &mut impl FnMut(&'static str, String),
    ) -> Vec<Self> {
        let conditions = pairs
            .iter()
            .map(|(name, value)| Self::new(name, value, own));
        valid(conditions, "extension", report)
    }

    fn new(name: &str, value: &str, own: &[(String, String)]) -> Result<Self, String> {
        let oid = oid_of(name, own).ok_or_else(|| format!("there is no extension {name:?}"))?;
        let value =
            ValuePattern::parse(value).ok_or_else(|| format!("no value of {name:?} can match"))?;
        Ok(Self { oid, value })
    }
}

/// Reads certname patterns, and reports invalid ones under `key`.
pub(crate) fn patterns(
    texts: &[String],
    key: &'static str,
    report: &mut impl FnMut(&'static str, String),
) -> Vec<CertnamePattern> {
    let parsed = texts
        .iter()
        .map(|text| CertnamePattern::parse(text).map_err(|error| format!("{text:?}: {error}")));
    valid(parsed, key, report)
}

/// Whether all conditions match. `unreadable`: whether a condition matches a value that cannot be decoded reliably.
pub(crate) fn extensions_hold(
    conditions: &[ExtensionCondition],
    agent: Option<&Agent>,
    unreadable: bool,
) -> bool {
    let holds = |agent: &Agent| {
        let mut conditions = conditions.iter();
        conditions.all(|condition| match agent.extensions().value(&condition.oid) {
            ExtensionValue::Text(value) => condition.value.matches(value),
            ExtensionValue::Unreadable => unreadable,
            ExtensionValue::Absent => false,
        })
    };
    conditions.is_empty() || agent.is_some_and(holds)
}

/// Whether one of these CAs has issued the certificate. An empty list always matches.
pub(crate) fn issuer_holds(issuers: &[String], agent: Option<&Agent>) -> bool {
    let named = |agent: &Agent| issuers.iter().any(|name| *name == agent.issuer());
    issuers.is_empty() || agent.is_some_and(named)
}

/// The OID of an extension. `name` is Puppet's name, a name from `[identity.extensions]`, or the OID in dotted form.
pub fn oid_of(name: &str, own: &[(String, String)]) -> Option<String> {
    let named = || own.iter().find(|(known, _)| known == name);
    extension_oid(name)
        .or_else(|| named().map(|(_, oid)| oid.clone()))
        .or_else(|| is_extension_oid(name).then(|| name.to_owned()))
}
