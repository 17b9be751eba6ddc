//! The acts, in order. Each shows something that operators want to see before they trust the proxy with their estate.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Client, Enrolment, Recorded, StandIn, TestConnection, TestCredential, wait_until};

use super::{
    Plant,
    estate::{CA_CERTIFICATE, CRL, DemoEstate, Request},
    story::{Expected, ExpectedIdentity, FarEnd, Story},
};

/// Prints the addresses and the configuration.
pub(crate) fn introduction(estate: &DemoEstate, story: &mut Story) {
    let members: Vec<_> = estate
        .members()
        .map(|member| format!("{} {}", member.name(), member.address()))
        .collect();
    println!();
    story.print(&format!(
        "agents → proscenium {} → {}",
        estate.proxy.address(),
        members.join(", ")
    ));
    story.print(
        "Every connection is mutual TLS with certificates of one Puppet CA. The configuration:",
    );
    story.quote("", &estate.six_lines().join("\n"));
}

/// Runs every act.
pub(crate) fn all(estate: &DemoEstate, story: &mut Story, plant: Option<Plant>) -> Result<()> {
    let web01 = enrolment(estate, story, plant)?;
    let web02 = estate.ca.agent("web02");
    runs(estate, story, [&web01, &web02], plant)?;
    forgery(estate, story, &web02, plant)?;
    revocation(estate, story, &web02, plant)?;
    death(estate, story, &web01, plant)?;
    records(estate, story);
    super::keep::write_credentials(estate, &[&web01, &web02]);
    Ok(())
}

fn enrolment(
    estate: &DemoEstate,
    story: &mut Story,
    plant: Option<Plant>,
) -> Result<TestCredential> {
    story.act("An enrolment: web01 has a key and no certificate");
    let agent = Enrolment::new("web01");
    let mut connection = estate.connect(None)?;
    let mut send = |story: &mut Story, request: Request<'_>, status| {
        let exchange = estate.send(&mut connection, &request);
        let far_end = match request.target {
            CA_CERTIFICATE | CRL => FarEnd::CaOrCopy,
            _ => FarEnd::Sees {
                members: &["ca"],
                client: ExpectedIdentity::None,
            },
        };
        story.exchange(&exchange, &Expected { status, far_end });
        exchange
    };

    let bundle = send(story, Request::get(CA_CERTIFICATE), 200);
    story.expect(
        "the CA bundle arrived byte for byte",
        bundle.text() == estate.ca.bundle_pem(),
        &bundle.text(),
    );
    send(story, Request::get(CRL), 200);
    let target = "/puppet-ca/v1/certificate_request/web01";
    let sent = agent.request_pem().as_bytes();
    let put = send(story, Request::with_body("PUT", target, sent), 200);
    let arrived = put.arrived.last().map(Recorded::text).unwrap_or_default();
    story.expect(
        &format!(
            "the CA server has the signing request, {} bytes, unchanged",
            arrived.len()
        ),
        arrived == agent.request_pem(),
        &arrived,
    );
    send(story, Request::get("/puppet-ca/v1/certificate/web01"), 404);
    if plant != Some(Plant::Enrolment) {
        estate.ca_server.sign("web01")?;
        story.print("… the CA signs …");
    }
    let certificate = send(story, Request::get("/puppet-ca/v1/certificate/web01"), 200);
    let credential = agent.accept(&certificate.text());
    story.expect(
        &format!(
            "a certificate of web01 for web01's own key, issued by \"{}\"",
            estate.ca.name()
        ),
        credential.is_some(),
        &certificate.text(),
    );
    match credential {
        Some(credential) => Ok(credential),
        None => Err(story
            .end()
            .err()
            .context("the certificate was not accepted, yet no expectation was missed")?),
    }
}

fn runs(
    estate: &DemoEstate,
    story: &mut Story,
    agents: [&TestCredential; 2],
    plant: Option<Plant>,
) -> Result<()> {
    story.act("Two agent runs, shared by both compilers");
    if plant == Some(Plant::Runs) {
        estate.compilers[1].kill();
    }
    let mut arrived = Vec::new();
    for agent in agents {
        let mut connection = estate.connect(Some(agent))?;
        arrived.extend(run(estate, story, &mut connection, agent, &["c1", "c2"]));
    }
    let shares = ["c1", "c2"].map(|name| arrived.iter().filter(|r| r.member == name).count());
    let connections = ["c1", "c2"].map(|name| {
        let numbers = arrived
            .iter()
            .filter(|r| r.member == name)
            .map(|r| r.connection);
        numbers.collect::<std::collections::BTreeSet<_>>().len()
    });
    story.expect(
        &format!(
            "c1 saw {} requests on {} connections, c2 {} on {}",
            shares[0], connections[0], shares[1], connections[1]
        ),
        shares.iter().all(|share| *share > 0),
        "one compiler did all the work",
    );
    let certificates = [estate.credential.cert_der.clone()];
    story.expect(
        "both saw the proxy's own certificate, and the agents' identities in headers",
        arrived
            .iter()
            .all(|request| request.peer_certificates == certificates),
        "another certificate",
    );
    Ok(())
}

/// Sends the requests of an agent run on one connection and returns what arrived at the members.
fn run(
    estate: &DemoEstate,
    story: &mut Story,
    connection: &mut TestConnection,
    agent: &TestCredential,
    members: &[&str],
) -> Vec<Recorded> {
    let name = &agent.certname;
    let in_environment = |path: &str| format!("/puppet/v3/{path}environment=production");
    let targets = [
        in_environment(&format!("node/{name}?")),
        in_environment("file_metadatas/plugins?recurse=true&"),
        in_environment(&format!("catalog/{name}?")),
        in_environment("file_content/modules/motd/motd?"),
        in_environment(&format!("report/{name}?")),
    ];
    let facts = format!(
        "environment=production&facts_format=application%2Fjson&facts=%7B%22name%22%3A%22{name}%22%7D"
    );
    let report = format!(r#"{{"host":"{name}","status":"unchanged"}}"#);
    let requests = [
        Request::get(&targets[0]),
        Request::get(&targets[1]),
        Request::with_body("POST", &targets[2], facts.as_bytes()),
        Request::get(&targets[3]),
        Request::with_body("PUT", &targets[4], report.as_bytes()),
    ];
    let mut arrived = Vec::new();
    for request in &requests {
        let exchange = estate.send(connection, request);
        let client = ExpectedIdentity::Agent(name);
        let far_end = FarEnd::Sees { members, client };
        story.exchange(
            &exchange,
            &Expected {
                status: 200,
                far_end,
            },
        );
        if !request.body.is_empty() {
            let body = exchange
                .arrived
                .iter()
                .all(|arrived| arrived.body.kept == request.body);
            story.expect_quietly(&format!("the body of {} unchanged", request.target), body);
        }
        arrived.extend(exchange.arrived);
    }
    arrived
}

fn forgery(
    estate: &DemoEstate,
    story: &mut Story,
    agent: &TestCredential,
    plant: Option<Plant>,
) -> Result<()> {
    story.act("A forged header: web02 claims to be admin");
    let request = Request {
        headers: FORGED,
        ..Request::get("/puppet/v3/catalog/web02?environment=production")
    };
    let mut connection = if plant == Some(Plant::Forgery) {
        let compiler = estate.compilers[0].socket_address();
        let bundle = estate.ca.bundle_pem();
        Client::new(compiler, &bundle, Some(&estate.credential)).connect()?
    } else {
        estate.connect(Some(agent))?
    };
    story.quote("web02 sends", &lines(FORGED));
    let exchange = estate.send(&mut connection, &request);
    for arrived in &exchange.arrived {
        let received = identity_lines(arrived);
        story.quote(
            &format!("{} receives", arrived.member),
            &received.join("\n"),
        );
    }
    let far_end = FarEnd::Sees {
        members: &["c1", "c2"],
        client: ExpectedIdentity::Agent("web02"),
    };
    story.exchange(
        &exchange,
        &Expected {
            status: 200,
            far_end,
        },
    );
    let raw: String = exchange.arrived.iter().map(Recorded::raw_text).collect();
    story.expect(
        &format!(
            "none of the {} raw bytes that arrived contain \"admin\"",
            raw.len()
        ),
        !raw.is_empty() && !raw.contains("admin"),
        &raw.lines()
            .filter(|line| line.contains("admin"))
            .collect::<Vec<_>>()
            .join(", "),
    );

    story.print("The same without a certificate:");
    let exchange = estate.send(&mut estate.connect(None)?, &request);
    story.exchange(
        &exchange,
        &Expected {
            status: 403,
            far_end: FarEnd::NoRequest,
        },
    );
    story.quote("web02 receives", exchange.text().trim());
    Ok(())
}

fn revocation(
    estate: &DemoEstate,
    story: &mut Story,
    agent: &TestCredential,
    plant: Option<Plant>,
) -> Result<()> {
    story.act("A certificate revoked on open connections: web02 waits for a catalog and has an idle connection");
    let catalog = Request::with_body("POST", "/puppet/v3/catalog/web02", b"facts=%7B%7D");
    let report = Request::with_body("PUT", "/puppet/v3/report/web02", b"{}");
    let mut idle = estate.connect(Some(agent))?;
    let exchange = estate.send(&mut idle, &Request::get("/puppet/v3/node/web02"));
    story.exchange(&exchange, &seen_as(agent));

    let mut busy = estate.connect(Some(agent))?;
    hold(estate);
    busy.send(
        catalog.method,
        catalog.target,
        catalog.headers,
        catalog.body,
    )?;
    member_with_a_request(estate).context("no compiler saw the catalog's request")?;
    if plant != Some(Plant::Revocation) {
        estate.ca.revoke(agent);
    }
    estate.proxy.write_crl();
    let reload = estate.proxy.hang_up();
    story.print(&format!(
        "… web02 is revoked by CRL number {}; SIGHUP; reload {} …",
        estate.ca.crl_number(),
        reload["result"].as_str().unwrap_or("nothing")
    ));
    estate.compilers.iter().for_each(StandIn::release);
    let answer = busy.read_response_to("POST");
    story.exchange(&estate.exchange(&catalog, answer), &seen_as(agent));
    let exchange = estate.send(&mut busy, &report);
    story.exchange(
        &exchange,
        &Expected {
            status: 403,
            far_end: FarEnd::NoRequest,
        },
    );
    story.quote("web02 receives", exchange.text().trim());
    for (connection, claim) in [
        (
            &mut busy,
            "the proxy closes that connection after the answer",
        ),
        (&mut idle, "the proxy closes the idle connection"),
    ] {
        story.expect(
            claim,
            connection.is_closed_within(LIMIT),
            "the connection is open",
        );
    }
    Ok(())
}

fn death(
    estate: &DemoEstate,
    story: &mut Story,
    agent: &TestCredential,
    plant: Option<Plant>,
) -> Result<()> {
    story.act("A compiler is killed while it compiles a catalog");
    let catalog = Request::with_body("POST", "/puppet/v3/catalog/web01", b"facts=%7B%7D");
    let mut connection = estate.connect(Some(agent))?;
    hold(estate);
    connection.send(
        catalog.method,
        catalog.target,
        catalog.headers,
        catalog.body,
    )?;
    let victim = member_with_a_request(estate).context("no compiler saw the catalog's request")?;
    let survivor = 1 - victim;
    let [victim, survivor] = [victim, survivor].map(|index| &estate.compilers[index]);
    story.print(&format!(
        "… {} is compiling, and is killed …",
        victim.name()
    ));
    victim.kill();
    if plant == Some(Plant::Death) {
        survivor.kill();
    }
    survivor.release();
    let answer = connection.read_response_to("POST");
    let exchange = estate.exchange(&catalog, answer);
    let far_end = FarEnd::Sees {
        members: &[victim.name()],
        client: ExpectedIdentity::Agent("web01"),
    };
    story.exchange(
        &exchange,
        &Expected {
            status: 502,
            far_end,
        },
    );
    story.quote("web01 receives", exchange.text().trim());
    story.expect(
        &format!(
            "the POST arrived {} time: the proxy did not send it to a second compiler",
            exchange.arrived.len()
        ),
        exchange.arrived.len() == 1,
        &format!("{} arrivals", exchange.arrived.len()),
    );
    story.print(&format!("The next run, with {} gone:", victim.name()));
    let mut connection = estate.connect(Some(agent))?;
    run(estate, story, &mut connection, agent, &[survivor.name()]);
    Ok(())
}

fn records(estate: &DemoEstate, story: &mut Story) {
    let answers = story.answers();
    let enough = || estate.proxy.records().len() >= answers;
    // The proxy writes records outside the request path, so the last one may follow its answer.
    wait_until(LIMIT, || enough().then_some(()));
    let records = estate.proxy.records().len();
    story.act("The access log");
    story.expect(
        &format!("{answers} answers, {records} access records"),
        answers == records,
        "an exchange without a record, or a record too many",
    );
}

/// Expects the status 200, and the agent's identity at one compiler.
fn seen_as(agent: &TestCredential) -> Expected<'_> {
    let client = ExpectedIdentity::Agent(&agent.certname);
    let far_end = FarEnd::Sees {
        members: &["c1", "c2"],
        client,
    };
    Expected {
        status: 200,
        far_end,
    }
}

fn hold(estate: &DemoEstate) {
    estate.members().for_each(StandIn::forget);
    estate.compilers.iter().for_each(StandIn::hold);
}

/// Index of the compiler that received a complete request.
fn member_with_a_request(estate: &DemoEstate) -> Option<usize> {
    let has_one = |member: &StandIn| member.requests().iter().any(|request| request.complete);
    wait_until(LIMIT, || estate.compilers.iter().position(has_one))
}

/// The raw field lines that carry the client's identity.
fn identity_lines(request: &Recorded) -> Vec<String> {
    let is_identity = |line: &&str| {
        let line = line.to_ascii_lowercase().replace(['_', '.'], "-");
        IDENTITY_PREFIXES
            .iter()
            .any(|beginning| line.starts_with(beginning))
    };
    let text = request.raw_text();
    text.lines()
        .filter(is_identity)
        .map(str::to_owned)
        .collect()
}

fn lines(fields: &[(&str, &str)]) -> String {
    let line = |(name, value): &(&str, &str)| format!("{name}: {value}\n");
    fields.iter().map(line).collect()
}

/// Spellings that some servers read as the same field, and a `Connection` header that names the proxy's own fields.
const FORGED: &[(&str, &str)] = &[
    ("X-Client-Verify", "SUCCESS"),
    ("X-Client-DN", "CN=admin"),
    ("x_client_dn", "CN=admin"),
    ("X.Client.Cert", "admin"),
    ("X-SSL-Client-DN", "/CN=admin"),
    ("X-Forwarded-For", "admin"),
    ("Connection", "keep-alive, X-Client-Verify, X-Client-DN"),
];

/// Prefixes of the fields that carry a client's identity.
const IDENTITY_PREFIXES: &[&str] = &[
    "x-client-",
    "x-ssl-",
    "x-forwarded-",
    "x-real-ip",
    "connection",
];

/// Timeout for each wait.
const LIMIT: Duration = Duration::from_secs(5);
