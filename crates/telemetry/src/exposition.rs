//! The two text formats of metrics, and their negotiation.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// The Prometheus text format 0.0.4, which every scraper and `promtool check metrics` read.
    Text,
    /// OpenMetrics 1.0.0, for scrapers that ask for it.
    OpenMetrics,
}

impl Exposition {
    /// The format that an `Accept` header prefers. It is the Prometheus text format unless the header names OpenMetrics with a
    /// higher weight than every media range that includes plain text.
    pub fn negotiated(accept: Option<&str>) -> Self {
        let (mut open, mut text) = (0, 0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let mut weight = 1000;
            let mut version = None;
            for parameter in parts {
                match parameter.split_once('=') {
                    Some((name, value)) if name.eq_ignore_ascii_case("q") => {
                        weight = thousandths(value)
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("version") => {
                        version = Some(value)
                    }
                    _ => {}
                }
            }
            match media.as_str() {
                "application/openmetrics-text"
                    if version.is_none_or(|version| version == "1.0.0") =>
                {
                    open = open.max(weight);
                }
                "text/plain" | "text/*" | "*/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0 && open >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text to this format. In the older format, a counter has the name of its samples (`_total`), and
    /// there are neither lines for units nor an end marker.
    pub(crate) fn of_openmetrics(self, text: String) -> String {
        if self == Self::OpenMetrics {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        let mut help = "";
        for line in text.lines() {
            if line.starts_with("# HELP ") {
                // The next line says whether this is a counter.
                help = line;
            } else if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap_or((family, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                let sentence = help
                    .strip_prefix("# HELP ")
                    .and_then(|help| help.split_once(' '));
                if let Some((_, sentence)) = sentence {
                    out.push_str(&format!("# HELP {name}{suffix} {sentence}\n"));
                }
                out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            } else if !line.starts_with("# UNIT ") && line != "# EOF" {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

/// A weight (RFC 9110, 12.4.2) in thousandths. A weight that cannot be parsed excludes its media range.
fn thousandths(weight: &str) -> u32 {
    match weight.parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_only_for_scrapers_that_prefer_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (None, Exposition::Text),
            (Some(""), Exposition::Text),
            (Some("*/*"), Exposition::Text),
            (Some("text/html, */*;q=0.8"), Exposition::Text),
            (Some(prometheus), Exposition::OpenMetrics),
            (
                Some("Application/OpenMetrics-Text"),
                Exposition::OpenMetrics,
            ),
            (
                Some("application/openmetrics-text; version=1.0.0; charset=utf-8"),
                Exposition::OpenMetrics,
            ),
            (
                Some("application/openmetrics-text; version=0.0.1"),
                Exposition::Text,
            ),
            (Some("application/openmetrics-text;q=0"), Exposition::Text),
            (Some("application/openmetrics-text;q=x"), Exposition::Text),
            (
                Some("application/openmetrics-text;q=0.2, text/plain;q=0.5"),
                Exposition::Text,
            ),
        ] {
            assert_eq!(Exposition::negotiated(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_text_format_names_counters_by_their_samples() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n\
                    # HELP b Gauge.\n# TYPE b gauge\nb{x=\"# EOF\"} 2\n# EOF\n";
        assert_eq!(
            Exposition::Text.of_openmetrics(open.to_owned()),
            "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 1\n\
             # HELP b Gauge.\n# TYPE b gauge\nb{x=\"# EOF\"} 2\n"
        );
        assert_eq!(
            Exposition::OpenMetrics.of_openmetrics(open.to_owned()),
            open
        );
    }
}
