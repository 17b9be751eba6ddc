//! Stand-in for the `server` crate until it is there: the calls of this crate, with nothing behind them.

#![allow(dead_code)]

use std::{fmt, path::PathBuf};

pub(crate) struct Options {
    pub(crate) config: PathBuf,
    pub(crate) ssldir: Option<PathBuf>,
    pub(crate) certname: Option<String>,
}

#[derive(Debug)]
pub(crate) enum StartError {
    Config(config::Report),
    Missing(PathBuf),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing serves yet")
    }
}

impl std::error::Error for StartError {}

pub(crate) struct Checked {
    pub(crate) report: config::Report,
    pub(crate) facts: Vec<String>,
}

pub(crate) struct Explainer;

#[derive(Debug)]
pub(crate) enum ExplainAs {
    Anonymous,
    Certname(String),
    Certificate(PathBuf),
}

pub(crate) fn run(options: &Options) -> Result<(), StartError> {
    match check(options) {
        Err(report) => Err(StartError::Config(report)),
        Ok(_) => Err(StartError::Missing(options.config.clone())),
    }
}

pub(crate) fn check(options: &Options) -> Result<Checked, config::Report> {
    let text = std::fs::read_to_string(&options.config).unwrap_or_default();
    let report = config::check_text(&options.config.display().to_string(), &text);
    if report.has_errors() {
        return Err(report);
    }
    let facts = vec![format!("{:?} {:?}", options.ssldir, options.certname)];
    Ok(Checked { report, facts })
}

pub(crate) fn prepare_for_explain(options: &Options) -> Result<Explainer, config::Report> {
    check(options).map(|_| Explainer)
}

impl Explainer {
    pub(crate) fn explain(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        identity: ExplainAs,
    ) -> Result<String, String> {
        Err(format!(
            "cannot explain {method} {url} {headers:?} {identity:?} yet"
        ))
    }
}

pub(crate) fn effective(options: &Options, defaults: bool) -> Result<String, config::Report> {
    check(options).map(|_| format!("# defaults: {defaults}"))
}
