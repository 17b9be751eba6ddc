//! Turns TOML into a validated `Config` and reports all problems at once. This crate opens no file and reads no clock.
//!
//! A configuration is loaded in these steps. [`Draft::read`] parses the text, checks it against the schema (`schema`,
//! `keys`) and checks that its parts agree. [`Draft::wanted`] names the materials, and the caller reads them.
//! [`Draft::finish`] validates them and returns a [`Config`] or a [`ConfigReport`]. [`load`] does all steps in one call;
//! start, reload and `check` use it.

mod access;
mod access_logs;
mod agent;
mod bases;
mod binding;
mod ca_options;
mod changes;
mod closest;
mod config;
mod crl_expired;
mod draft;
mod enrolment;
mod environment;
mod examination;
mod fleet;
mod forms;
mod identity;
mod keys;
mod known_pool;
mod listeners;
mod materials;
mod needs;
mod passthrough;
mod policies;
mod pools;
mod puppet_conf;
mod quantity;
mod reference;
mod report;
mod routes;
mod schema;
mod section;
mod show;
mod socket;
mod trust;
mod validation;
mod values;
mod words;

pub use crate::{
    ca_options::CaOptions,
    changes::{ChangeKind, SettingChange},
    config::{
        AccessLog, AccessLogOutput, ChangeDetection, Config, CredentialFiles, EtcdEndpoint,
        EventOutput, Fetch, Fleet, MaterialWatching, MemberTls, OwnRenewal, PoolConfig, Trust,
    },
    draft::{Draft, trust_key},
    environment::{Environment, Overrides},
    materials::{
        Blob, LoadedConfig, LoadedMaterial, MaterialKind, MaterialName, MaterialReadError,
        MaterialReader, Materials,
    },
    puppet_conf::PuppetConf,
    quantity::duration,
    reference::{NOTATION, Setting, SettingsTable, defaults, reference, settings},
    report::{Colour, ConfigReport, ConfigSource, Problem, ProblemSeverity, TextPosition},
    socket::{access_log_file, admin_socket, state_directory},
};

/// Loads a configuration and its materials, in the same way for start, reload and `check`.
///
/// # Errors
/// The report of all problems of the file and its materials, including warnings.
pub fn load(
    source: &ConfigSource,
    overrides: &Overrides,
    environment: &Environment,
    files: &dyn MaterialReader,
) -> Result<LoadedConfig, ConfigReport> {
    Draft::read(source, overrides, environment, files).load(files)
}

/// Checks a file without its materials, as on a machine that has an agent's certificate. Used for examples in documents
/// and for tests.
#[must_use]
pub fn check_text(name: &str, text: &str) -> ConfigReport {
    let source = ConfigSource {
        name: name.into(),
        text: text.into(),
    };
    let environment = Environment {
        ssldirs: vec!["/etc/puppetlabs/puppet/ssl".into()],
        hostname: Some("puppet.example.com".into()),
        ..Environment::default()
    };
    Draft::read(
        &source,
        &Overrides::default(),
        &environment,
        &materials::NoFiles,
    )
    .into_report()
}
