//! `crl_expired`: `"warn"`, `"reject"` or `"grace:DURATION"`.

use std::time::Duration;

use pki::settings::CrlExpired;

use crate::quantity::{duration, show_duration};

const GRACE_MIN: Duration = Duration::from_secs(1);
/// Puppet's CRLs are valid for five years. A grace period longer than a year is probably a mistake in the unit.
const GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);

pub(crate) fn parse(text: &str) -> Option<CrlExpired> {
    match text.strip_prefix("grace:") {
        Some(grace) => duration(grace)
            .filter(|grace| (GRACE_MIN..=GRACE_MAX).contains(grace))
            .map(CrlExpired::Grace),
        None if text == "warn" => Some(CrlExpired::Warn),
        None => (text == "reject").then_some(CrlExpired::Reject),
    }
}

pub(crate) fn show(policy: CrlExpired) -> String {
    match policy {
        CrlExpired::Warn => "warn".into(),
        CrlExpired::Reject => "reject".into(),
        CrlExpired::Grace(grace) => format!("grace:{}", show_duration(grace)),
    }
}
