//! The settings of `puppet.conf` that name servers and files.

use std::collections::BTreeMap;

/// The text of a `puppet.conf`, by sections.
#[derive(Clone, Debug, Default)]
pub struct PuppetConf {
    /// Values by section and key. The last value that is not empty counts.
    settings: BTreeMap<(String, String), String>,
}

impl PuppetConf {
    /// Sections that apply to an agent's run, the one that takes precedence first.
    pub const AGENT: &[&str] = &["agent", "main"];
    /// Sections that may name the files of a machine that has a Puppet Server and no agent.
    pub const ANY: &[&str] = &["agent", "main", "server", "master"];

    /// Reads the text. Lines that are neither sections nor settings are skipped, as Puppet skips comments.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut section = "main".to_owned();
        let mut settings = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with('#') {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next())
            {
                section = name.trim().to_lowercase();
            } else if let Some((key, value)) = line.split_once('=') {
                let value = unquoted(value);
                if !value.is_empty() {
                    settings.insert((section.clone(), key.trim().to_owned()), value);
                }
            }
        }
        Self { settings }
    }

    /// The value of a setting in the first of these sections that has it. Within a section, the last line counts.
    #[must_use]
    pub fn get(&self, sections: &[&str], key: &str) -> Option<&str> {
        let mut values = sections.iter().map(|section| {
            let name = ((*section).to_owned(), key.to_owned());
            self.settings.get(&name)
        });
        values.find_map(|value| value.map(String::as_str))
    }
}

/// The value without the quotes around it, and without a comment after it.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let quote = value
        .chars()
        .next()
        .filter(|first| ['"', '\''].contains(first));
    match quote.and_then(|quote| value[1..].split_once(quote)) {
        Some((inner, _)) => inner.to_owned(),
        None => value
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &[&str] = PuppetConf::AGENT;
    const ANY: &[&str] = PuppetConf::ANY;

    #[test]
    fn settings_are_found_by_section_as_puppet_finds_them() {
        let conf = PuppetConf::parse(
            "# server = commented.example.com\n\
             ca_port = 8141\n\
             [main]\n\
               server = puppet.example.com   # the old name\n\
             certname='proxy.example.com'\n\
             empty =\n\
             [agent]\n\
             server = first.example.com\n\
             server = \"second.example.com\"\n\
             no setting\n\
             [server]\n\
             ssldir = /srv/ssl\n",
        );
        for (sections, key, expected) in [
            (AGENT, "server", Some("second.example.com")),
            (&["main"][..], "server", Some("puppet.example.com")),
            (AGENT, "certname", Some("proxy.example.com")),
            (AGENT, "ca_port", Some("8141")),
            (AGENT, "ssldir", None),
            (ANY, "ssldir", Some("/srv/ssl")),
            (ANY, "empty", None),
            (ANY, "no setting", None),
        ] {
            assert_eq!(conf.get(sections, key), expected, "{key}");
        }
        let odd = PuppetConf::parse("[\nx = '\ny = \"a\n= z\n[]\n");
        assert_eq!(odd.get(ANY, "ssldir"), None);
    }
}
