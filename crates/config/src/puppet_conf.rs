//! The settings of `puppet.conf` that name servers and files.

/// The text of a `puppet.conf`, by sections.
#[derive(Clone, Debug, Default)]
pub struct PuppetConf {
    /// Section, key and value, in the order of the file.
    settings: Vec<(String, String, String)>,
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
        let mut settings = Vec::new();
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
                settings.push((section.clone(), key.trim().to_owned(), unquoted(value)));
            }
        }
        Self { settings }
    }

    /// The value of a setting in the first of these sections that has it. Within a section, the last line counts.
    #[must_use]
    pub fn get(&self, sections: &[&str], key: &str) -> Option<&str> {
        sections.iter().find_map(|section| {
            let mut lines = self.settings.iter().rev();
            lines
                .find(|(its, name, value)| its == section && name == key && !value.is_empty())
                .map(|(_, _, value)| value.as_str())
        })
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
