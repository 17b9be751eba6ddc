//! Removes from a request every header that a member could read as an identity header of the proxy (THREATS T1, T2).

use crate::folding::{is_identity_name, without_cgi_prefix};
use crate::header_rules::HeaderRules;
use crate::own_names::OwnNames;

/// Counts of the header lines that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Lines that some server reads as an identity or forwarding header. Clients send them by mistake or as an attack.
    pub identity: u32,
    /// The names of these lines, without duplicates.
    pub identity_names: Vec<String>,
    /// Other lines with a `_` in their name. CGI-style servers cannot distinguish it from `-`.
    pub underscore: u32,
}

impl ScrubReport {
    /// The counts for lines with these names, which some route keeps but this route and its pool do not.
    pub fn of_unkept<'n>(
        set_aside: impl Iterator<Item = &'n str>,
        rules: [&HeaderRules; 2],
    ) -> Self {
        let mut report = Self::default();
        for name in set_aside {
            if !rules.iter().any(|rules| rules.keeps(name)) {
                // Only lines that `classify` finds are set aside.
                let finding = classify(name.as_bytes(), &OwnNames::default());
                report.count(name, finding.unwrap_or(Unwanted::Identity));
            }
        }
        report
    }

    /// Whether a line with this name, in lower case, must be removed from a request. Such a line is counted.
    ///
    /// Such lines have any spelling of an identity or forwarding header, including the names in the configuration, or any other
    /// name with a `_`. This is called before routing, for every line of a request that has such a line.
    pub fn scrubs(&mut self, name: &str, own: &OwnNames) -> bool {
        let finding = classify(name.as_bytes(), own);
        if let Some(finding) = finding {
            self.count(name, finding);
        }
        finding.is_some()
    }

    fn count(&mut self, name: &str, finding: Unwanted) {
        match finding {
            Unwanted::Identity => {
                self.identity += 1;
                if !self.identity_names.iter().any(|known| known == name) {
                    self.identity_names.push(name.to_owned());
                }
            }
            Unwanted::Underscore => self.underscore += 1,
        }
    }
}

/// Whether headers with this name are removed from every request. A route's condition on such a header could never match.
pub fn is_removed(name: &[u8], own: &OwnNames) -> bool {
    classify(name, own).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwanted {
    Identity,
    Underscore,
}

fn classify(name: &[u8], own: &OwnNames) -> Option<Unwanted> {
    let bare = without_cgi_prefix(name);
    if own.holds(bare) || is_identity_name(bare) {
        Some(Unwanted::Identity)
    } else if name.contains(&b'_') {
        Some(Unwanted::Underscore)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
