//! The command `trace`: the requests of one agent as a timeline, from the access log.

mod bars;

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rustix::fs::OFlags;
use serde::Serialize;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

use self::bars::{BarStyle, Phases};
use crate::{
    arguments::{Arguments, Trace},
    columns::columns,
    failure::Failure,
    output,
};

/// How much of the end of the access log is read.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of runs that are shown: the last ones.
const RUNS_MAX: usize = 10;
/// A pause of this many seconds separates two runs. Within a run an agent applies its catalog, for minutes at times, but
/// it fetches files and keeps connections busy meanwhile.
const PAUSE_SECONDS: f64 = 300.0;

/// Shows the last runs of an agent.
pub(crate) fn trace(arguments: &Arguments, wanted: &Trace) -> Result<(), Failure> {
    let (config, log) = (&arguments.config, wanted.log.as_deref());
    let (path, runs) = recorded_runs(config, log, LOG_BYTES_MAX, &wanted.certname)?;
    output::answer(arguments.json, &runs, |runs| {
        if runs.is_empty() {
            format!(
                "no request of {} is in {}; `proscenium who {}` shows what the proxy remembers",
                wanted.certname,
                path.display(),
                wanted.certname
            )
        } else {
            let style = BarStyle::of_output();
            let runs = runs
                .iter()
                .map(|run| run_text(run, style))
                .collect::<Vec<_>>();
            let (runs, legend) = (runs.join("\n\n"), style.legend());
            format!("{runs}\n\n{legend}\nread from {}", path.display())
        }
    })
}

/// The last runs of an agent, from the end of `log` or of the access log of the configuration.
pub(crate) fn recorded_runs(
    config: &Path,
    log: Option<&Path>,
    bytes_max: u64,
    certname: &str,
) -> Result<(PathBuf, Vec<AgentRun>), Failure> {
    let path = match log {
        Some(path) => path.to_owned(),
        None => configured_log(config)?,
    };
    let text = end_of(&path, OFlags::empty(), bytes_max).map(|(_, text)| text);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, runs(&text, certname)))
}

/// Requests of an agent without a long pause between them.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct AgentRun {
    began: String,
    seconds: f64,
    requests: Vec<TracedRequest>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct TracedRequest {
    /// Seconds since the start of the run.
    offset: f64,
    /// Its duration from the head of the request to the last byte of the response.
    seconds: f64,
    status: u64,
    request: String,
    member: String,
    reason: Option<String>,
    #[serde(skip)]
    phases: Phases,
}

/// The access log of the configuration file that commands can read.
pub(crate) fn configured_log(config: &Path) -> Result<PathBuf, Failure> {
    let place = config.display();
    let text = fs::read_to_string(config).with_context(|| format!("cannot read {place}"))?;
    config::access_log_file(&text).ok_or_else(|| {
        Failure::because(format!(
            "{place} has no access log that is a file in format json or combined: add one as [[access_log]], or set --log"
        ))
    })
}

/// The length of a regular file, and its last `bytes_max` bytes. `flags` are further ones of open(2).
pub(crate) fn end_of(path: &Path, flags: OFlags, bytes_max: u64) -> io::Result<(u64, String)> {
    // Opening a pipe would wait for its other end.
    let flags = flags | OFlags::NONBLOCK;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let length = metadata.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((length, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The last runs of an agent in a log of either format, the latest last.
fn runs(log: &str, certname: &str) -> Vec<AgentRun> {
    // Most lines are about other agents, and are not parsed.
    let lines = log.lines().filter(|line| line.contains(certname));
    let records = lines.filter_map(|line| {
        if line.starts_with('{') {
            from_json(line, certname)
        } else {
            from_combined(line, certname)
        }
    });
    let mut records: Vec<_> = records.collect();
    // A record is written when its request ends, so records are not in the order in which requests began.
    records.sort_by_key(|(at, _)| *at);
    let mut runs: Vec<(OffsetDateTime, AgentRun)> = Vec::new();
    for (at, mut request) in records {
        match runs.last_mut() {
            Some((began, run)) if (at - *began).as_seconds_f64() - run.seconds < PAUSE_SECONDS => {
                request.offset = (at - *began).as_seconds_f64();
                run.seconds = run.seconds.max(request.offset + request.seconds);
                run.requests.push(request);
            }
            _ => {
                let run = AgentRun {
                    began: at.format(&Rfc3339).unwrap_or_default(),
                    seconds: request.seconds,
                    requests: vec![request],
                };
                runs.push((at, run));
            }
        }
    }
    let surplus = runs.len().saturating_sub(RUNS_MAX);
    runs.into_iter().skip(surplus).map(|(_, run)| run).collect()
}

fn from_json(line: &str, certname: &str) -> Option<(OffsetDateTime, TracedRequest)> {
    let record: Value = serde_json::from_str(line).ok()?;
    if record["certname"] != certname {
        return None;
    }
    let at = OffsetDateTime::parse(record["time"].as_str()?, &Rfc3339).ok()?;
    let text = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
    let request = TracedRequest {
        offset: 0.0,
        seconds: record["total_us"].as_f64().unwrap_or(0.0) / 1e6,
        status: record["status"].as_u64()?,
        request: format!("{} {}", record["method"].as_str()?, path(&text("target"))),
        member: text("member"),
        reason: record["reason"].as_str().map(str::to_owned),
        phases: Phases::of(|name| record[name].as_f64()),
    };
    Some((at, request))
}

/// `host - user [time] "method target protocol" status bytes "referer" "agent" key=value …`
fn from_combined(line: &str, certname: &str) -> Option<(OffsetDateTime, TracedRequest)> {
    let (_, rest) = line.split_once(" [")?;
    let (at, rest) = rest.split_once("] \"")?;
    let format = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    let at = OffsetDateTime::parse(at, &format).ok()?;
    let (request, rest) = rest.split_once("\" ")?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let fields = |name: &str| {
        let mut fields = rest.split(' ').filter_map(|field| field.split_once('='));
        fields
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_matches('"').to_owned())
    };
    if fields("certname")? != certname {
        return None;
    }
    let micros = |name: &str| fields(name)?.parse::<f64>().ok();
    let request = TracedRequest {
        offset: 0.0,
        seconds: micros("total_us").unwrap_or(0.0) / 1e6,
        status: rest.split(' ').next()?.parse().ok()?,
        request: format!("{method} {}", path(target)),
        member: fields("member").unwrap_or_else(|| "-".to_owned()),
        reason: fields("reason").filter(|reason| reason != "-"),
        phases: Phases::of(micros),
    };
    Some((at, request))
}

/// The target without its query, which is long.
fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

fn run_text(run: &AgentRun, style: BarStyle) -> String {
    let seconds = run.requests.iter().map(|request| request.phases.seconds());
    let longest = seconds.fold(0.0, f64::max);
    let rows = run.requests.iter().map(|request| {
        [
            format!("+{:.3} s", request.offset),
            format!("{:.3} s", request.seconds),
            request.status.to_string(),
            request.member.clone(),
            style.bar(&request.phases, longest),
            match &request.reason {
                Some(reason) => format!("{} ({reason})", request.request),
                None => request.request.clone(),
            },
        ]
    });
    let count = run.requests.len();
    format!(
        "{}: {count} requests in {:.1} s\n{}",
        run.began,
        run.seconds,
        columns(
            ["OFFSET", "TOOK", "STATUS", "AT", "PHASES", "REQUEST"],
            rows
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        r#"{"time":"2026-11-21T13:22:05.000123Z","certname":"web01","method":"GET","target":"/puppet/v3/node/web01?a=b","#,
        r#""status":200,"member":"c1:8140","total_us":50000}"#,
        "\n",
        r#"{"time":"2026-11-21T13:22:06.500123Z","certname":"web01","method":"POST","target":"/puppet/v3/catalog/web01","#,
        r#""status":503,"member":null,"total_us":2000000,"reason":"queue-full"}"#,
        "\n",
        r#"{"time":"2026-11-21T13:22:06Z","certname":"web010","method":"GET","target":"/","status":200,"total_us":1}"#,
        "\n",
        r#"192.0.2.7 - web01 [21/Nov/2026:13:52:05 +0000] "PUT /puppet/v3/report/web01?x=y HTTP/1.1" 200 12 "-" "Puppet" "#,
        "certname=web01 member=c2:8140 total_us=1500 reason=-\n",
        "half a line of web01",
    );

    #[test]
    fn requests_of_one_agent_are_grouped_by_run() {
        let runs = runs(LOG, "web01");
        let [first, second] = runs.as_slice() else {
            panic!("{runs:?}")
        };
        assert_eq!(first.requests.len(), 2);
        assert_eq!(first.requests[0].request, "GET /puppet/v3/node/web01");
        assert!(
            (first.requests[1].offset - 1.5).abs() < 1e-6 && (first.seconds - 3.5).abs() < 1e-6
        );
        assert_eq!(first.requests[1].reason.as_deref(), Some("queue-full"));
        assert_eq!(second.requests[0].member, "c2:8140");
        assert_eq!(second.requests[0].reason, None);
        let text = run_text(first, BarStyle::of_output());
        assert!(text.contains("+1.500 s  2.000 s  503"), "{text}");
        let json = serde_json::to_value(&first.requests[0]).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 6, "{json}");
    }
}
