//! The acts with real servers and agents, in the same order as with stand-ins. Each line is checked against a log.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};
use testkit::wait_until;

use super::{
    facts::{self, Arrival, Expected},
    stack::{CommandOutcome, MEMBERS, Mark, Running, Stack},
};
use crate::demo::{Plant, story::Story};

/// Runs every act; the comparison of the logs is the last.
pub(super) fn all(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    let begun = stack.mark();
    introduction(stack, story);
    if !enrolment(stack, story, plant)? {
        return Ok(());
    }
    run(stack, story, plant)?;
    forgery(stack, story, plant)?;
    revocation(stack, story, plant)?;
    death(stack, story, plant)?;
    account(stack, story, &begun);
    Ok(())
}

fn introduction(stack: &Stack, story: &Story) {
    println!();
    story.print(&format!(
        "puppet-agent {} → proscenium → puppetserver {}: one CA, compilers m1 and m2",
        version("puppet-agent"),
        version("puppetserver")
    ));
    story.print("Every connection is TLS. The proxy's machine is enrolled like any other; its whole configuration:");
    story.quote("", &stack.read("proxy/proscenium.toml"));
}

/// Returns whether web01 has a certificate afterwards.
fn enrolment(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<bool> {
    story.act("An enrolment: web01 has a key and no certificate");
    let mark = stack.mark();
    let outcome = run_announced(stack, story, &["agent", "web01", "--waitforcert", "0"])?;
    ends_with(
        story,
        "the agent submits its request and exits",
        &outcome,
        &[1],
    );
    let at_the_ca = |method, path, status| Expected {
        method,
        path,
        status,
        members: &["ca"],
        client: None,
    };
    arrive(
        stack,
        story,
        &mark,
        &[
            at_the_ca("GET", "/puppet-ca/v1/certificate/ca", 200),
            at_the_ca("GET", "/puppet-ca/v1/certificate_revocation_list/ca", 200),
            at_the_ca(
                "PUT",
                "/puppet-ca/v1/certificate_request/web01.lab.test",
                200,
            ),
            at_the_ca("GET", "/puppet-ca/v1/certificate/web01.lab.test", 404),
        ],
    );
    if plant != Some(Plant::Enrolment) {
        let signed = run_announced(stack, story, &["ca", "sign", "--certname", WEB01])?;
        ends_with(story, "the CA signs", &signed, &[0]);
    }
    let mark = stack.mark();
    let outcome = run_announced(stack, story, &["enrol", "web01"])?;
    ends_with(story, "the agent has its certificate", &outcome, &[0]);
    arrive(
        stack,
        story,
        &mark,
        &[at_the_ca(
            "GET",
            "/puppet-ca/v1/certificate/web01.lab.test",
            200,
        )],
    );
    Ok(outcome.code == Some(0))
}

fn run(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    story.act("A run: plugins, catalog, files, report");
    if plant == Some(Plant::Runs) {
        stack.run(&["signal", "m2", "KILL"])?;
    }
    let mark = stack.mark();
    let outcome = run_announced(stack, story, &["agent", "web01"])?;
    ends_with(story, "the run changes the machine", &outcome, &[2]);
    story.quote("web01 prints", &outcome.lines_with(&["Applied catalog"]));
    arrive(
        stack,
        story,
        &mark,
        &[
            by_a_compiler("POST", "/puppet/v3/catalog/web01.lab.test", WEB01),
            by_a_compiler("GET", "/puppet/v3/file_content/modules/lab/big", WEB01),
            by_a_compiler("PUT", "/puppet/v3/report/web01.lab.test", WEB01),
        ],
    );
    let arrived = at_compilers(stack, &mark);
    let shares = ["m1", "m2"].map(|name| arrived.iter().filter(|a| a.member == name).count());
    story.expect(
        &format!(
            "m1 answered {} of the run's requests, m2 {}",
            shares[0], shares[1]
        ),
        shares.iter().all(|share| *share > 0),
        "one compiler did all the work",
    );
    let dn = format!("CN={WEB01}");
    story.expect(
        &format!("all {} carry SUCCESS {dn}", arrived.len()),
        arrived
            .iter()
            .all(|arrival| arrival.verify == "SUCCESS" && arrival.dn == dn),
        &arrived
            .iter()
            .map(Arrival::summary)
            .collect::<Vec<_>>()
            .join(", "),
    );
    certificate_facts(stack, story);
    Ok(())
}

/// The agent's file and the stored reports show what the compiler knew about the client.
fn certificate_facts(stack: &Stack, story: &mut Story) {
    let motd = stack.read("web01/out/motd");
    story.print("What the compiler knew from the certificate, in a file of web01:");
    story.quote("/motd", &motd);
    story.expect(
        "the role in the certificate reached the compiler",
        motd.contains("authenticated remote") && motd.contains("role web"),
        &motd,
    );
    let status = stored_reports(stack).join(", ");
    story.expect(
        &format!("reports that the compilers stored: {status}"),
        status.contains("changed"),
        "no report of a change",
    );
}

fn forgery(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    story.act("A forged header: web02 claims to be web01");
    let enrolled = run_announced(stack, story, &["enrol", "web02.auto"])?;
    ends_with(story, "web02 has a certificate of its own", &enrolled, &[0]);
    let lines: Vec<_> = FORGED
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    story.quote("web02 sends", &lines.join("\n"));

    let mark = stack.mark();
    let of_another = "/puppet/v3/node/web01.lab.test";
    let answer = if plant == Some(Plant::Forgery) {
        past_the_proxy(stack, of_another)?
    } else {
        curl(stack, "web02.auto", of_another)?
    };
    story.quote("web02 receives", &answer);
    refused_by_the_proxy(stack, story, &mark, "GET", of_another);
    curl(stack, "web02.auto", "/puppet/v3/node/web02.auto.lab.test")?;
    arrive(
        stack,
        story,
        &mark,
        &[by_a_compiler(
            "GET",
            "/puppet/v3/node/web02.auto.lab.test",
            WEB02,
        )],
    );
    let arrived = at_compilers(stack, &mark);
    story.expect(
        "no compiler saw web01's name",
        arrived.iter().all(|arrival| !arrival.dn.contains("web01")),
        &arrived
            .iter()
            .map(Arrival::summary)
            .collect::<Vec<_>>()
            .join(", "),
    );

    story.print("The same without a certificate:");
    let mark = stack.mark();
    let answer = curl(stack, "-", of_another)?;
    story.quote("client receives", &answer);
    refused_by_the_proxy(stack, story, &mark, "GET", of_another);
    Ok(())
}

fn revocation(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    story.act("A certificate revoked on an open connection: web02 waits for its catalog");
    let mark = stack.mark();
    let hold = stack.hold("revocation")?;
    story.print("… puppet agent --test, with a slow catalog …");
    let mut agent = stack.begin(&["agent", "web02.auto"], Some(&hold))?;
    let compiler = holder(&hold, &mut agent)?;
    if plant != Some(Plant::Revocation) {
        let revoked = run_announced(stack, story, &["ca", "revoke", "--certname", WEB02])?;
        ends_with(
            story,
            &format!("revoked, while {compiler} compiles"),
            &revoked,
            &[0],
        );
        let taken = run_announced(stack, story, &["crl", "web02.auto"])?;
        ends_with(
            story,
            "the proxy's machine has the new CRL, and the proxy applies it",
            &taken,
            &[0],
        );
    }
    fs::write(hold.join("release"), "")?;
    let outcome = agent.wait()?;
    arrive(
        stack,
        story,
        &mark,
        &[by_a_compiler(
            "POST",
            "/puppet/v3/catalog/web02.auto.lab.test",
            WEB02,
        )],
    );
    refused_by_the_proxy(
        stack,
        story,
        &mark,
        "PUT",
        "/puppet/v3/report/web02.auto.lab.test",
    );
    let said = outcome.lines_with(&["Could not send report"]);
    story.quote("web02 prints", &said);
    story.expect(
        "the agent learns that its certificate is revoked",
        said.contains("403") && said.contains("revoked"),
        &outcome.text,
    );
    Ok(())
}

fn death(stack: &Stack, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    story.act("A compiler is killed while it compiles a catalog");
    let mark = stack.mark();
    let hold = stack.hold("death")?;
    story.print("… puppet agent --test, with a slow catalog …");
    let mut agent = stack.begin(&["agent", "web01"], Some(&hold))?;
    let victim = holder(&hold, &mut agent)?;
    let survivor = if victim == "m1" { "m2" } else { "m1" };
    stack.run(&["signal", &victim, "KILL"])?;
    story.print(&format!("… {victim} is compiling, and is killed …"));
    if plant == Some(Plant::Death) {
        stack.run(&["signal", survivor, "KILL"])?;
    }
    let outcome = agent.wait()?;
    fs::write(hold.join("release"), "")?;
    ends_with(story, "the run fails", &outcome, &[1]);
    let said = outcome.lines_with(&["Error 502"]);
    story.quote("web01 prints", &said);
    story.expect(
        "the agent learns that its request failed",
        !said.is_empty(),
        &outcome.text,
    );
    lost_once(stack, story, &mark, &victim);
    let begun = holders(&hold);
    story.expect(
        &format!("only {} compiled it", begun.join(" and ")),
        begun == [victim.clone()],
        "a second compiler received it",
    );
    next_run(stack, story, survivor)
}

/// The proxy's record has a 502 for that compiler after one attempt, and no server answered the catalog.
fn lost_once(stack: &Stack, story: &mut Story, mark: &Mark, victim: &str) {
    let records = stack.records_since(mark);
    let Some(lost) = records
        .iter()
        .find(|record| record.request.path() == CATALOG_OF_WEB01)
    else {
        return story.expect("the catalog has a record", false, "none");
    };
    let (status, attempts) = (lost.request.status, lost.field("attempts"));
    story.expect(
        &format!(
            "POST {CATALOG_OF_WEB01} {status}  proxy's record: {}, attempts {attempts}",
            lost.field("reason")
        ),
        status == 502 && lost.member() == Some(victim) && attempts == "1",
        lost.field("member"),
    );
    let mut arrived = stack.arrivals_since(mark);
    arrived.retain(|arrival| arrival.request.path() == CATALOG_OF_WEB01);
    story.expect(
        "no compiler has answered it",
        arrived.is_empty(),
        "there is an answer",
    );
}

fn next_run(stack: &Stack, story: &mut Story, survivor: &str) -> Result<()> {
    story.print("The next run:");
    let mark = stack.mark();
    let outcome = run_announced(stack, story, &["agent", "web01"])?;
    ends_with(story, &format!("{survivor} serves it"), &outcome, &[0, 2]);
    let members = &[survivor];
    let report = by_a_compiler("PUT", "/puppet/v3/report/web01.lab.test", WEB01);
    arrive(
        stack,
        story,
        &mark,
        &[
            Expected {
                members,
                ..by_a_compiler("POST", CATALOG_OF_WEB01, WEB01)
            },
            Expected { members, ..report },
        ],
    );
    Ok(())
}

fn account(stack: &Stack, story: &mut Story, begun: &Mark) {
    story.act("The access log");
    let differences =
        || facts::differences(&stack.arrivals_since(begun), &stack.records_since(begun));
    let _ = wait_until(LOGS, || differences().is_empty().then_some(()));
    let arrivals = stack.arrivals_since(begun);
    let counts = MEMBERS.map(|name| {
        let here = |arrival: &&Arrival| arrival.member == name && arrival.is_for_a_client();
        format!("{name} {}", arrivals.iter().filter(here).count())
    });
    story.expect(
        &format!("answers in the servers' own logs: {}; they match the proxy's access records one to one", counts.join(", ")),
        differences().is_empty(),
        &differences().join("; "),
    );
}

/// Runs a lab command. It takes seconds, so its name is printed first.
fn run_announced(stack: &Stack, story: &Story, arguments: &[&str]) -> Result<CommandOutcome> {
    let program = match arguments[0] {
        "agent" => "puppet agent --test",
        "enrol" => "puppet ssl bootstrap",
        "ca" => "puppetserver ca",
        _ => "the proxy's agent fetches the CRL",
    };
    let options = match arguments[0] {
        "ca" => &arguments[1..],
        _ => arguments.get(2..).unwrap_or_default(),
    };
    story.print(&format!("… {} …", [&[program], options].concat().join(" ")));
    stack.run(arguments)
}

fn ends_with(story: &mut Story, claim: &str, outcome: &CommandOutcome, codes: &[i32]) {
    let code = outcome
        .code
        .map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    story.expect(
        &format!("{claim} (exit {code})"),
        outcome.code.is_some_and(|code| codes.contains(&code)),
        &outcome.text,
    );
}

/// Checks that each of these is in the expected server's log since the mark. A log may lag behind.
fn arrive(stack: &Stack, story: &mut Story, mark: &Mark, expected: &[Expected<'_>]) {
    for expected in expected {
        let check = || expected.check(&stack.arrivals_since(mark));
        let _ = wait_until(LOGS, || check().1.is_ok().then_some(()));
        let (line, seen) = check();
        story.expect(&line, seen.is_ok(), &seen.err().unwrap_or_default());
    }
}

/// Checks that the proxy's record has a 403, and that no server logged the request.
fn refused_by_the_proxy(stack: &Stack, story: &mut Story, mark: &Mark, method: &str, path: &str) {
    let of_path = |request: &facts::Request| request.method == method && request.path() == path;
    let record = || {
        stack
            .records_since(mark)
            .into_iter()
            .find(|record| of_path(&record.request))
    };
    let record = wait_until(LOGS, record);
    let arrived = stack.arrivals_since(mark);
    let arrived: Vec<_> = arrived
        .iter()
        .filter(|arrival| of_path(&arrival.request))
        .collect();
    let status = record.as_ref().map_or(0, |record| record.request.status);
    let reason = record.as_ref().map_or("-", |record| record.field("reason"));
    let seen: Vec<_> = arrived.iter().map(|arrival| arrival.summary()).collect();
    story.expect(
        &format!(
            "{method:4} {path:49} {status}  {}; proxy's record: {reason}",
            if seen.is_empty() {
                "no member saw it"
            } else {
                "seen"
            }
        ),
        status == 403 && seen.is_empty(),
        &seen.join(", "),
    );
}

fn by_a_compiler<'a>(method: &'a str, path: &'a str, client: &'a str) -> Expected<'a> {
    Expected {
        method,
        path,
        status: 200,
        members: &["m1", "m2"],
        client: Some(client),
    }
}

fn at_compilers(stack: &Stack, mark: &Mark) -> Vec<Arrival> {
    let mut arrived = stack.arrivals_since(mark);
    arrived.retain(|arrival| arrival.member != "ca" && arrival.is_for_a_client());
    arrived
}

/// Sends a request with the forged headers through the proxy, with this agent's certificate or none (`-`).
fn curl(stack: &Stack, name: &str, path: &str) -> Result<String> {
    let target = format!("{path}?environment=production");
    let lines: Vec<_> = FORGED
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let mut arguments = vec!["curl", name, &target];
    lines.iter().for_each(|line| arguments.extend(["-H", line]));
    Ok(stack.run(&arguments)?.text)
}

/// Sends the same request to a compiler's plain HTTP port, where identity headers are not removed.
fn past_the_proxy(stack: &Stack, path: &str) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-H", "Accept: application/json"]);
    for (name, value) in &FORGED[..2] {
        curl.args(["-H", &format!("{name}: {value}")]);
    }
    let output = curl
        .arg(format!(
            "http://{}:8080{path}?environment=production",
            stack.address("m1")
        ))
        .output();
    Ok(String::from_utf8_lossy(&output.context("curl does not start")?.stdout).into_owned())
}

/// Waits for the compiler that holds the catalog.
fn holder(hold: &Path, agent: &mut Running<'_>) -> Result<String> {
    let begun = wait_until(CATALOG, || {
        let holders = holders(hold);
        (!holders.is_empty() || agent.has_ended()).then_some(holders)
    });
    match begun.unwrap_or_default().pop() {
        Some(name) => Ok(name),
        None => bail!("no compiler has begun the catalog"),
    }
}

/// The compilers that started a catalog. Each writes a file `held.NAME.lab.test`.
fn holders(hold: &Path) -> Vec<String> {
    let entries = fs::read_dir(hold).into_iter().flatten();
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let file = entry.ok()?.file_name().into_string().ok()?;
        Some(file.strip_prefix("held.")?.split('.').next()?.to_owned())
    };
    entries.filter_map(name).collect()
}

/// The `status` of each report of web01 that a compiler stored.
fn stored_reports(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for member in ["m1", "m2"] {
        let directory = format!("{member}/var/reports/{WEB01}");
        for file in stack.list(&directory) {
            let report = stack.read(&format!("{directory}/{file}"));
            let status = report
                .lines()
                .find_map(|line| line.strip_prefix("status: "));
            found.extend(status.map(|status| format!("{member} {status}")));
        }
    }
    found
}

fn version(package: &str) -> String {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

const WEB01: &str = "web01.lab.test";
const CATALOG_OF_WEB01: &str = "/puppet/v3/catalog/web01.lab.test";
/// The CA signs this name automatically, because it ends in `.auto`.
const WEB02: &str = "web02.auto.lab.test";

const FORGED: &[(&str, &str)] = &[
    ("X-Client-Verify", "SUCCESS"),
    ("X-Client-DN", "CN=web01.lab.test"),
    ("x_client_dn", "CN=web01.lab.test"),
    ("X-SSL-Client-DN", "/CN=web01.lab.test"),
    ("Connection", "keep-alive, X-Client-Verify, X-Client-DN"),
];

/// The proxy writes records outside the request path, and a server logs after its answer.
const LOGS: Duration = Duration::from_secs(10);
/// Time for an agent to collect facts, load plugins and request its catalog.
const CATALOG: Duration = Duration::from_secs(180);
