//! The command `doctor`: prints each finding with a remedy, and sets the exit code by the most severe one.

use std::collections::BTreeSet;

use admin::settings::AdminSettings;
use anyhow::Context;
use doctor::{DoctorFinding, DoctorOptions, DoctorReport, FindingSeverity, examine};

use crate::{
    arguments::{Arguments, Doctor},
    ask,
    exit_codes::{CONFIGURATION, FAILURES, WARNINGS},
    failure::Failure,
    output,
    progress::with_progress,
    verbs::options,
};

/// Checks the deployment and prints the findings.
pub(crate) fn doctor(arguments: &Arguments, doctor: &Doctor) -> Result<(), Failure> {
    let agent = doctor.agent_cert.clone().zip(doctor.agent_key.clone());
    let examination = DoctorOptions {
        options: options(arguments, &doctor.agent),
        agent,
        plain_ports: doctor.plain_port.clone(),
        tls_ports: doctor.tls_port.clone(),
        // If the configuration file cannot be read, the report shows that, so the default socket is enough here.
        socket: ask::socket(arguments, &doctor.socket)
            .unwrap_or_else(|_| AdminSettings::default().socket),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let report = with_progress("testing the files, the CA and every member", || {
        runtime.block_on(examine(&examination))
    });
    // Do not wait for name lookups that are still running.
    runtime.shutdown_background();
    if arguments.json {
        output::print(&serde_json::to_string_pretty(&report).context("findings are JSON")?)?;
    } else {
        output::print(&text(&report))?;
    }
    match report.worst() {
        _ if report.configuration_refused => Err(Failure::Found(CONFIGURATION)),
        Some(FindingSeverity::Failure) => Err(Failure::Found(FAILURES)),
        Some(FindingSeverity::Warning) => Err(Failure::Found(WARNINGS)),
        Some(FindingSeverity::Note) | None => Ok(()),
    }
}

fn text(report: &DoctorReport) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(paragraph).collect();
    let passed: BTreeSet<_> = report.passed.iter().map(|passed| passed.check).collect();
    if !passed.is_empty() {
        let names: Vec<_> = passed.iter().map(ToString::to_string).collect();
        lines.push(format!("passed: {}", names.join(", ")));
    }
    let count = |grade| {
        let graded = report
            .findings
            .iter()
            .filter(|finding| finding.severity == grade);
        graded.count()
    };
    lines.push(format!(
        "{} passed; failures: {}, warnings: {}, notes: {}",
        report.passed.len(),
        count(FindingSeverity::Failure),
        count(FindingSeverity::Warning),
        count(FindingSeverity::Note)
    ));
    lines.join("\n")
}

fn paragraph(finding: &DoctorFinding) -> String {
    format!(
        "{:<8} {}: {}\n         {}\n         remedy: {}\n",
        finding.severity, finding.check, finding.about, finding.found, finding.remedy
    )
}
