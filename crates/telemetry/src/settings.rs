//! What a configuration says about the access log.

/// Form of an access record's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Apache's combined log with the certname as user, followed by `key=value` fields. The default.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// `[access_log]`, without the file it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Form of a line. Default `combined`.
    pub format: Format,
    /// Records that may wait to be written; more are dropped and counted. Default 8192.
    pub queue_max: usize,
}

impl Default for AccessLogSettings {
    fn default() -> Self {
        Self {
            format: Format::Combined,
            queue_max: 8192,
        }
    }
}
