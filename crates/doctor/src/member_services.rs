//! Whether a member is the kind of server that its pool expects.

use std::time::SystemTime;

use balancing::settings::CheckKind;
use http::StatusCode;
use upstream::QueryResponse;

use lifecycle::jrubies::{self, JrubyError};

use crate::{
    Check, DoctorReport, FindingSeverity, claimed_identity, crls,
    member::{CA_CERTIFICATE, CRLS, Member, Role, STATUS, describe},
};

/// Tests whether the member's status says that it can serve, if its check would request the status.
pub(crate) async fn status(member: &Member, simple: &QueryResponse, report: &mut DoctorReport) {
    let about = &member.about;
    let inquiry = upstream::HttpCheck::of(&member.check);
    let asked;
    let (answer, inquiry) = match (inquiry, member.check.kind) {
        // A status on another port only concerns probes.
        (Some(_), _) if member.check.port.is_some() => return,
        (Some(inquiry), CheckKind::Http)
            if inquiry.path == STATUS && member.role != Role::Other =>
        {
            (simple, inquiry)
        }
        (Some(inquiry), CheckKind::Http) if !inquiry.is_puppet_status() => return,
        (Some(inquiry), _) => {
            let fields = claimed_identity::unknown_client(member.form());
            asked = match member.query_as_proxy(inquiry.path, fields).await {
                Ok(answer) => answer,
                Err(error) => return unclear(Check::Status, about, describe(&error), report),
            };
            (&asked, inquiry)
        }
        (None, _) => return,
    };
    let path = inquiry.path;
    let text = String::from_utf8_lossy(&answer.body);
    if inquiry.accepts(answer.status, &text) {
        return report.passed(Check::Status, about);
    }
    let remedy = match answer.status {
        StatusCode::NOT_FOUND => {
            "it is not a Puppet server: check the port in `members`, and which service listens there"
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "it is starting, stopping, or has failed to start: look at its log"
        }
        status if status.is_server_error() => "it cannot serve requests: look at its log",
        _ => "test it with curl: it must answer 200 and `running` to every client",
    };
    // Only printable ASCII is kept: some characters that move the cursor or change the writing direction are not
    // control characters.
    let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    let text: String = text.chars().map(plain).take(64).collect();
    let found = format!(
        "{path} answered {} `{text}`, expected {}",
        answer.status,
        inquiry.expected()
    );
    report.found(
        Check::Status,
        FindingSeverity::Failure,
        about,
        found,
        remedy,
    );
}

/// Tests whether the member is a CA server, and which CA's CRLs it has.
pub(crate) async fn ca(member: &Member, report: &mut DoctorReport) -> bool {
    let about = &member.about;
    let bundle = member
        .query_as_proxy(
            CA_CERTIFICATE,
            claimed_identity::unknown_client(member.form()),
        )
        .await;
    let unclear_because = match bundle {
        Ok(answer) if answer.status == StatusCode::OK && answer.body.starts_with(b"-----BEGIN") => {
            report.passed(Check::Service, about);
            None
        }
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
            report.found(
                Check::Service,
                FindingSeverity::Failure,
                about,
                format!("{CA_CERTIFICATE} answered 404: it is a compiler, or its CA service is disabled, so an agent that enrols would never get its certificate"),
                "set the CA server in `[pools.ca]`, or enable its CA service (services.d/ca.cfg)",
            );
            return false;
        }
        Ok(answer) => Some(format!("{CA_CERTIFICATE} answered {}", answer.status)),
        Err(error) => Some(describe(&error)),
    };
    if let Some(why) = unclear_because {
        unclear(Check::Service, about, why, report);
        return false;
    }
    let served = member
        .query_as_proxy(CRLS, claimed_identity::unknown_client(member.form()))
        .await;
    match served {
        Ok(answer) if answer.status == StatusCode::OK => {
            crls::held_against(member, answer.body.into(), report);
        }
        Ok(answer) => {
            let found = format!("{CRLS} answered {}", answer.status);
            unclear(Check::CrlFresh, about, found, report);
        }
        Err(error) => unclear(Check::CrlFresh, about, describe(&error), report),
    }
    true
}

/// Tests whether the member is a compiler and not a CA server.
pub(crate) async fn compiler(member: &Member, report: &mut DoctorReport) {
    if member.is_legacy() {
        return;
    }
    let about = &member.about;
    let bundle = member
        .query_as_proxy(
            CA_CERTIFICATE,
            claimed_identity::unknown_client(member.form()),
        )
        .await;
    match bundle {
        Ok(answer) if answer.status == StatusCode::OK => report.found(
            Check::Service,
            FindingSeverity::Warning,
            about,
            "the CA service runs in a process that trusts headers: a client that can connect to it could get a certificate with any name",
            "disable it (`certificate-authority-disabled-service` in services.d/ca.cfg), or run the CA in a separate process",
        ),
        Ok(_) => report.passed(Check::Service, about),
        Err(error) => unclear(Check::Service, about, describe(&error), report),
    }
}

/// Tests whether the member shows how many JRubies it has, if the proxy would read that.
pub(crate) async fn jrubies(member: &Member, report: &mut DoctorReport) {
    if !upstream::reads_jrubies(&member.check) {
        return;
    }
    let about = &member.about;
    let question = jrubies::counts_query(member.check.port);
    let answer = match upstream::query(&member.connector, &question).await {
        Ok(answer) => answer,
        Err(error) => return unclear(Check::Jrubies, about, describe(&error), report),
    };
    match jrubies::read(&answer, SystemTime::now()) {
        Ok(_) => report.passed(Check::Jrubies, about),
        Err(JrubyError::Forbidden) => report.found(
            Check::Jrubies,
            FindingSeverity::Note,
            about,
            format!(
                "{} answered {}: the proxy balances without JRuby counts",
                jrubies::PATH,
                answer.status
            ),
            format!(
                "add this rule to its auth.conf, or set read_jrubies = false: {}",
                jrubies::AUTH_RULE
            ),
        ),
        // The server is older than 5.0, or is not a Puppet Server.
        Err(JrubyError::Status(StatusCode::NOT_FOUND)) => {}
        Err(error) => unclear(Check::Jrubies, about, error.to_string(), report),
    }
}

/// Reports a test whose request shows nothing.
pub(crate) fn unclear(check: Check, about: &str, found: String, report: &mut DoctorReport) {
    report.found(
        check,
        FindingSeverity::Warning,
        about,
        format!("cannot be tested: {found}"),
        "look at its log, and run doctor again when it answers",
    );
}
