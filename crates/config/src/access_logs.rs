//! `[access_log]`, or several `[[access_log]]`.

use crate::{
    binding::{Base, Bound},
    config::{AccessLog, AccessLogOutput, Config},
    keys::{self, Root},
    report::Problem,
    section::Section,
    values::word,
};

/// Maximum number of access logs. Each log has a thread, and each record is formatted once per log.
const LOGS_MAX: usize = 8;

pub(crate) fn read(root: &Section<'_>, config: &mut Config, problems: &mut Vec<Problem>) {
    let (first, others) = root.one_or_more(Root::access_log);
    if root.is_empty_list(Root::access_log) {
        let problem = root.error(Root::access_log, "no access log");
        problems.push(problem.expected("at least one table"));
    }
    if others.len() >= LOGS_MAX {
        let message = format!("{} access logs are too many", others.len() + 1);
        let problem = root.error(Root::access_log, message);
        problems.push(problem.expected(format!("at most {LOGS_MAX}")));
    }
    config.access_log = access_log(&first);
    for section in &others {
        let log = access_log(section);
        let mut before = std::iter::once(&config.access_log).chain(&config.other_access_logs);
        if before.any(|other| is_same(&other.output, &log.output)) {
            let problem = section.error(
                keys::AccessLog::path,
                "another access log has the same path",
            );
            problems.push(problem.expected("another path"));
        }
        config.other_access_logs.push(log);
    }
}

/// Whether two logs write to the same output. Their lines could not be distinguished in one file, and after a
/// rotation each log would write to a different file.
fn is_same(one: &AccessLogOutput, other: &AccessLogOutput) -> bool {
    match (one, other) {
        (AccessLogOutput::Daemon(one), AccessLogOutput::Daemon(other)) => {
            one.socket == other.socket
        }
        (one, other) => one == other,
    }
}

fn access_log(section: &Section<'_>) -> AccessLog {
    let mut log = AccessLog::base();
    keys::AccessLog::read(section, &mut log);
    if let AccessLogOutput::Daemon(daemon) = &mut log.output {
        set_facility(daemon, section.value(keys::AccessLog::facility, &word()));
    }
    log
}

/// Sets the syslog facility from the file. The journal has no facility.
pub(crate) fn set_facility(
    daemon: &mut telemetry::DaemonSettings,
    written: Option<telemetry::Facility>,
) {
    if let (telemetry::LogProtocol::Syslog(facility), Some(written)) =
        (&mut daemon.protocol, written)
    {
        *facility = written;
    }
}
