//! Log formats in the syntax of Apache's `LogFormat`: `%h %l %u %t "%r" %>s %b`.

use std::str::FromStr;
use std::sync::Arc;

/// A format in the syntax of Apache's `LogFormat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    text: Arc<str>,
    parts: Arc<[Part]>,
}

/// Why a format is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFormatError {
    /// An unknown directive.
    #[error("the directive \"{0}\" is unknown")]
    Unknown(String),
    /// A byte that ends a line, or a control character.
    #[error("the format contains a control character")]
    Control,
    /// The format has no directive.
    #[error("the format contains no directive")]
    NoDirective,
    /// The format is too long.
    #[error("the format is longer than {FORMAT_BYTES_MAX} bytes")]
    TooLong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Box<str>),
    Directive(Directive),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    Address,
    /// `%l`: the answer of identd, which the proxy never queries.
    Missing,
    User,
    Time,
    Request,
    Method,
    Path,
    LogProtocol,
    Status,
    /// The bytes of the response body, or `-` if there are none.
    Bytes,
    /// The bytes of the response body, or 0 if there are none.
    BytesOrZero,
    Micros,
    Referer,
    UserAgent,
    Host,
    RequestId,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    Certname,
    Verdict,
}

/// Every directive, in Apache's spelling.
const DIRECTIVES: &[(&str, Directive)] = &[
    ("h", Directive::Address),
    ("a", Directive::Address),
    ("l", Directive::Missing),
    ("u", Directive::User),
    ("t", Directive::Time),
    ("r", Directive::Request),
    ("m", Directive::Method),
    ("U", Directive::Path),
    ("H", Directive::LogProtocol),
    ("s", Directive::Status),
    (">s", Directive::Status),
    ("b", Directive::Bytes),
    ("B", Directive::BytesOrZero),
    ("D", Directive::Micros),
    ("{Referer}i", Directive::Referer),
    ("{User-Agent}i", Directive::UserAgent),
    ("{Host}i", Directive::Host),
    ("{X-Request-Id}o", Directive::RequestId),
    ("{SSL_PROTOCOL}x", Directive::TlsVersion),
    ("{SSL_CIPHER}x", Directive::TlsCipher),
    ("{SSL_TLS_SNI}x", Directive::TlsServerName),
    ("{SSL_CLIENT_S_DN_CN}x", Directive::Certname),
    ("{SSL_CLIENT_VERIFY}x", Directive::Verdict),
];

/// Maximum bytes of a format.
const FORMAT_BYTES_MAX: usize = 1024;

impl LogFormat {
    /// The format as written in the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn parts(&self) -> &Arc<[Part]> {
        &self.parts
    }
}

impl FromStr for LogFormat {
    type Err = LogFormatError;

    fn from_str(text: &str) -> Result<Self, LogFormatError> {
        if text.len() > FORMAT_BYTES_MAX {
            return Err(LogFormatError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(LogFormatError::Control);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            push_text(&mut parts, before);
            rest = match after.strip_prefix('%') {
                Some(after) => {
                    push_text(&mut parts, "%");
                    after
                }
                None => {
                    let (directive, after) = directive(after)?;
                    parts.push(Part::Directive(directive));
                    after
                }
            };
        }
        push_text(&mut parts, rest);
        let directives = parts
            .iter()
            .filter(|part| matches!(part, Part::Directive(_)));
        if directives.count() == 0 {
            return Err(LogFormatError::NoDirective);
        }
        Ok(Self {
            text: text.into(),
            parts: parts.into(),
        })
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text(text.into()));
    }
}

/// The directive at the beginning of a text, and the rest.
fn directive(text: &str) -> Result<(Directive, &str), LogFormatError> {
    let found = DIRECTIVES
        .iter()
        .find_map(|(spelled, directive)| Some((*directive, text.strip_prefix(*spelled)?)));
    found.ok_or_else(|| {
        let end = text.find([' ', '"', '%']).unwrap_or(text.len());
        LogFormatError::Unknown(format!("%{}", &text[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_its_directives_and_the_text_between() {
        let format: LogFormat = "%t 100%% \"%r\" %{SSL_CIPHER}x%>s"
            .parse()
            .expect("a format");
        let text = |text: &str| Part::Text(text.into());
        assert_eq!(
            format.parts()[..],
            [
                Part::Directive(Directive::Time),
                text(" 100"),
                text("%"),
                text(" \""),
                Part::Directive(Directive::Request),
                text("\" "),
                Part::Directive(Directive::TlsCipher),
                Part::Directive(Directive::Status),
            ]
        );
        assert_eq!(format.as_str(), "%t 100%% \"%r\" %{SSL_CIPHER}x%>s");
    }

    #[test]
    fn an_invalid_format_is_refused_with_the_reason() {
        for (text, expected) in [
            ("%h %q", LogFormatError::Unknown("%q".into())),
            (
                "%{Cookie}i %h",
                LogFormatError::Unknown("%{Cookie}i".into()),
            ),
            ("%h %", LogFormatError::Unknown("%".into())),
            ("%h\n", LogFormatError::Control),
            ("jsn", LogFormatError::NoDirective),
            ("100%%", LogFormatError::NoDirective),
            ("", LogFormatError::NoDirective),
            (&"%h".repeat(600), LogFormatError::TooLong),
        ] {
            assert_eq!(text.parse::<LogFormat>(), Err(expected), "{text}");
        }
    }
}
