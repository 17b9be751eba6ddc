//! `explain` compared with the proxy: its prediction for a generated request is what happens to that request.

use std::collections::BTreeSet;

use testkit::{Ca, CommandOutcome, Proxy, Reply, Seed, StandIn, TestCredential};

use crate::support::{
    self, Estate, LIMIT, assert_contains, certificate_request, done,
    paths::CATALOG,
    tunnels::{self, CHAT, WEBSOCKET},
};

/// Number of compared requests.
const REQUESTS: usize = 150;
/// Some seeds reach a pool late. A higher maximum would hide a generator that no longer reaches every pool.
const REQUESTS_MAX: usize = 5 * REQUESTS;

#[test]
fn explain_predicts_the_result_of_every_generated_request() {
    let ca = Ca::new();
    let members = ["ca", "compilers", "compilers", "forge"].map(member);
    let [authority, first, second, forge] = &members;
    let clients = clients(&ca);
    let revoked = clients[REVOKED].credential.as_ref().unwrap();
    let proxy = support::proxy(&ca)
        .with(&pool("ca", &[authority]))
        .with(&pool("compilers", &[first, second]))
        .with(&pool("forge", &[forge]))
        .with(ROUTES)
        .file("revoked.pem", &revoked.cert_pem, 0o644)
        .start();
    proxy.wait_for_members(&["ca", "compilers", "forge"]);

    let mut seed = Seed::from_env_or_random();
    let mut seen = MemberRequest::default();
    for number in 0..REQUESTS_MAX {
        if number >= REQUESTS && seen.is_complete() {
            break;
        }
        let request = Request::generate(&mut seed, &clients);
        let client = &clients[request.client];
        let arguments = request.arguments(client, &proxy);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = Fate::parse(&proxy.command(&["explain"], &arguments));
        let source = request.source.parse().expect("an address");
        let connecting = proxy.client(client.credential.as_ref());
        let answer = connecting.server_name(request.sni).source(source).request(
            request.method,
            &request.target,
            &request.headers(),
            &request.body(),
        );
        let came = match answer.headers.get("x-pool") {
            Some(pool) => Fate::Pool(pool.to_owned()),
            None => Fate::Answer(answer.status),
        };
        assert_eq!(output, came, "{request:?}");
        seen.count(&came);
    }
    // A generator that only reached one branch would prove nothing.
    assert!(seen.is_complete(), "{seen:?}");
}

#[test]
fn explain_follows_the_listeners_policy_for_refused_certificates() {
    for (policy, catalog, enrolment, words) in [
        ("on_invalid = \"explain\"", 403, 403, ""),
        ("on_invalid = \"forward\"", 403, 200, "FAILED:revoked"),
        (
            "on_invalid = \"abort\"",
            0,
            0,
            "listener agents: the handshake fails with an alert",
        ),
    ] {
        let ca = Ca::new();
        let authority = member("ca");
        let revoked = ca.agent("revoked");
        ca.revoke(&revoked);
        let proxy = support::proxy(&ca)
            .listener(policy)
            .with(&pool("ca", &[&authority]))
            .with(&pool("compilers", &[&authority]))
            .file("revoked.pem", &revoked.cert_pem, 0o644)
            .start();
        proxy.wait_for_members(&["ca", "compilers"]);
        let certificate = proxy.directory().join("revoked.pem").display().to_string();
        for (target, expected) in [
            ("/puppet/v3/catalog/revoked", catalog),
            ("/puppet-ca/v1/certificate/ca", enrolment),
        ] {
            let outcome = proxy.command(&["explain"], &[target, "--cert", &certificate]);
            let answer = proxy
                .client(Some(&revoked))
                .try_request("GET", target, &[], b"");
            let came = answer.as_ref().map_or(0, |answer| answer.status);
            assert_eq!(came, expected, "{policy} {target}");
            let fate = Fate::parse(&outcome);
            match expected {
                200 => assert_eq!(fate, Fate::Pool("ca".to_owned()), "{}", outcome.stdout),
                // `explain` also shows what the member would receive if the request got that far.
                _ => assert_eq!(fate, Fate::Answer(403), "{}", outcome.stdout),
            }
            let alike = expected != 403;
            assert!(
                !alike || outcome.stdout.contains(words),
                "{}",
                outcome.stdout
            );
        }
    }
}

#[test]
fn explain_shows_where_a_client_without_a_certificate_is_stopped() {
    let ca = Ca::new();
    let outcome = support::proxy(&ca)
        .listener("client_cert = \"required\"")
        .without_members()
        .start()
        .command(&["explain"], &["/puppet-ca/v1/certificate/ca"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let expected =
        "listener agents: the handshake fails with an alert (client_cert = \"required\")";
    assert!(outcome.stdout.contains(expected), "{}", outcome.stdout);
}

#[test]
fn explain_obeys_the_blocks_by_name_of_the_running_proxy() {
    let estate = Estate::start();
    let explain = |name: &str| {
        let own = format!("/puppet/v3/catalog/{name}");
        let arguments = [own.as_str(), "--certname", name];
        estate.proxy.command(&["explain"], &arguments)
    };
    assert_eq!(explain("web01").code, Some(0));
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let output = explain("web01");
    assert_eq!(output.code, Some(1), "{output:?}");
    for line in [
        "client   refused: The certificate of web01 is blocked by the operator of this proxy",
        "answer   403 (refused-certificate): ",
    ] {
        assert!(output.stdout.contains(line), "{line}\n{}", output.stdout);
    }
    assert_eq!(explain("web02").code, Some(0));
    done(&estate.proxy, &["unblock"], &["web01"]);
    assert_eq!(explain("web01").code, Some(0));
}

#[test]
fn explain_with_contradictory_options_exits_64() {
    let estate = Estate::start();
    for arguments in [
        ["/x", "--method", "A B"],
        ["/x", "--certname", "a/b"],
        ["/x", "--cert", "/nonexistent.pem"],
    ] {
        let output = estate.proxy.command(&["explain"], &arguments);
        assert_eq!((output.code, &*output.stdout), (Some(64), ""), "{output:?}");
        assert!(output.stderr.starts_with("error: "), "{output:?}");
    }
}

#[test]
fn explain_names_the_options_that_are_not_set() {
    let ca = Ca::new();
    let outcome = |arguments: &[&str]| {
        let routes = "[[routes]]\nname = \"a\"\npool = \"ca\"\nsource = [\"10.0.0.0/8\"]\n\
                      [[routes]]\nname = \"b\"\npool = \"ca\"\nsni = [\"forge\"]";
        let proxy = support::proxy(&ca).without_members().with(routes).start();
        let output = proxy.command(
            &["explain"],
            &[&["/x", "--certname", "web01"], arguments].concat(),
        );
        let is_refused = output.stdout.contains("answer   404 (no-route)");
        assert_eq!(output.code, Some(i32::from(is_refused)), "{output:?}");
        output.stdout
    };
    let output = outcome(&[]);
    for line in [
        "route a: no match, by its condition \"source\" (--source is not set)",
        "route b: no match, by its condition \"sni\" (--sni is not set)",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    let output = outcome(&["--source", "11.0.0.1", "--sni", "forge"]);
    assert!(output.contains("condition \"source\"\n"), "{output}");
    assert!(output.contains("route b: matches"), "{output}");
    assert!(outcome(&["--source", "10.0.0.1"]).contains("route a: matches"));
}

#[test]
fn explain_shows_the_order_of_members_without_probes() {
    let ca = Ca::new();
    let proxy = support::proxy(&ca)
        .with("[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]")
        .with(
            "[pools.compilers]\nscheme = \"http\"\n\
             members = [\"127.0.0.1:2\", { address = \"127.0.0.1:3\", backup = true }]",
        )
        .start();
    let arguments = ["/puppet/v3/catalog/web01", "--certname", "web01"];
    let output = proxy.command(&["explain"], &arguments).stdout;
    let members: Vec<_> = output
        .lines()
        .filter(|line| line.starts_with("member"))
        .collect();
    assert_eq!(members.len(), 2, "{output}");
    assert!(members[0].contains(":2: fewest in flight"), "{output}");
    assert!(
        members[1].contains(":3 (backup): fewest in flight"),
        "{output}"
    );
    assert!(output.contains("every member is assumed up"), "{output}");
}

#[test]
fn explain_live_shows_the_health_of_members_and_whether_a_request_waits() {
    let estate = Estate::builder()
        .compilers(2)
        .compiler(2, "backup = true")
        .start();
    let compilers: Vec<_> = estate.compilers.iter().map(|c| c.address()).collect();
    let explain = || {
        let arguments = ["--live", "/puppet/v3/catalog/web01", "--certname", "web01"];
        let output = estate.proxy.command(&["explain"], &arguments).stdout;
        assert!(!output.contains("assumed up"), "{output}");
        output
    };
    let output = explain();
    for line in [
        format!("member   {}: ", compilers[0]),
        format!("member   {} (backup): ", compilers[1]),
        "queue    a member has room".to_owned(),
    ] {
        assert!(output.contains(&line), "{line}\n{output}");
    }
    for compiler in &compilers {
        done(
            &estate.proxy,
            &["drain", "compilers"],
            &[compiler, "--force"],
        );
    }
    let output = explain();
    for line in [
        format!("member   {}: not used: drain", compilers[0]),
        "queue    503 (no-member-available)".to_owned(),
    ] {
        assert!(output.contains(&line), "{line}\n{output}");
    }
}

/// The line about the queue for a request of this agent to the running proxy.
#[track_caller]
fn queue_line(estate: &Estate, certname: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let headers: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let mut arguments = vec!["--live", target, "--certname", certname];
    for header in &headers {
        arguments.extend(["--header", header]);
    }
    let output = estate.proxy.command(&["explain"], &arguments).stdout;
    let line = output.lines().find(|line| line.starts_with("queue"));
    line.unwrap_or_else(|| panic!("{output}")).to_owned()
}

#[test]
fn explain_live_counts_the_requests_of_the_client() {
    let estate = tunnels::builder("")
        .compiler(1, "max = 4")
        .with("[upstream]\nagent_max = 1\nclient_share = \"25%\"\n")
        .start();
    estate.compilers[0].hold();
    let file = "/puppet/v3/static_file_content/modules/m/files/f?environment=production&code_id=1";
    let mut running = Vec::new();
    for (target, setting) in [(CATALOG, "agent_max"), (file, "client_share")] {
        let mut connection = estate.agent("web01").connect().expect("connects");
        connection.send("GET", target, &[], b"").expect("sends");
        running.push(connection);
        estate.compilers[0].wait_for_head(running.len(), LIMIT);
        let waits =
            format!("the client already runs 1 of at most 1 requests in this pool ({setting})");
        assert_contains(&queue_line(&estate, "web01", target, &[]), &waits);
    }
    assert_contains(
        &queue_line(&estate, "web02", file, &[]),
        "a member has room",
    );
    // A tunnel does not wait for the other requests of its client, neither here nor in `explain`.
    let forecast = queue_line(&estate, "web01", CHAT, &WEBSOCKET);
    assert_contains(&forecast, "503 (client-share)");
    let mut tunnel = estate.agent("web01").connect().expect("connects");
    tunnel.send("GET", CHAT, &WEBSOCKET, b"").expect("sends");
    assert_eq!(tunnel.read_response().expect("an answer").status, 503);
    estate
        .proxy
        .wait_for_record(|record| record["reason"] == "client-share");
    estate.compilers[0].release();
    for mut connection in running {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
}

#[test]
fn explain_live_does_not_let_a_tunnel_wait_in_the_queue() {
    let estate = tunnels::builder("").compiler(1, "max = 1").start();
    estate.compilers[0].hold();
    let mut running = estate.agent("web01").connect().expect("connects");
    running.send("GET", CATALOG, &[], b"").expect("sends");
    estate.compilers[0].wait_for_head(1, LIMIT);
    assert_contains(
        &queue_line(&estate, "web02", CHAT, &[]),
        "every available member is at its limit",
    );
    let forecast = queue_line(&estate, "web02", CHAT, &WEBSOCKET);
    assert_contains(&forecast, "503 (queue-full)");
    let mut tunnel = estate.agent("web02").connect().expect("connects");
    tunnel.send("GET", CHAT, &WEBSOCKET, b"").expect("sends");
    assert_eq!(tunnel.read_response().expect("an answer").status, 503);
    estate
        .proxy
        .wait_for_record(|record| record["reason"] == "queue-full");
    estate.compilers[0].release();
    assert_eq!(running.read_response().expect("an answer").status, 200);
}

/// The result of a request: the pool that gets it, or the status with which the proxy answers.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Pool(String),
    Answer(u16),
}

impl Fate {
    /// Parses the lines `pool NAME` and `answer STATUS …`.
    #[track_caller]
    fn parse(outcome: &CommandOutcome) -> Self {
        let fate = outcome.stdout.lines().find_map(|line| {
            let words: Vec<&str> = line
                .split([' ', ':'])
                .filter(|word| !word.is_empty())
                .collect();
            match words[..] {
                ["pool", name] => Some(Self::Pool(name.to_owned())),
                ["answer", "by", "the", "proxy", status, ..] | ["answer", status, ..] => {
                    status.parse().ok().map(Self::Answer)
                }
                _ => None,
            }
        });
        let fate = fate.unwrap_or_else(|| panic!("neither pool nor answer in {}", outcome.stdout));
        let is_refused = matches!(fate, Self::Answer(400..));
        let expected = Some(i32::from(is_refused));
        assert_eq!(outcome.code, expected, "{} {fate:?}", outcome.stderr);
        fate
    }
}

#[derive(Debug, Default)]
struct MemberRequest {
    pools: BTreeSet<String>,
    answers: BTreeSet<u16>,
}

impl MemberRequest {
    /// Whether every pool and most kinds of answers were seen.
    fn is_complete(&self) -> bool {
        self.pools.len() == 3 && self.answers.len() >= 4
    }

    fn count(&mut self, fate: &Fate) {
        match fate {
            Fate::Pool(pool) => self.pools.insert(pool.clone()),
            Fate::Answer(status) => self.answers.insert(*status),
        };
    }
}

struct Client {
    credential: Option<TestCredential>,
    flags: &'static [&'static str],
}

/// An anonymous client, two agents, one that a route names, and one whose certificate is revoked.
fn clients(ca: &Ca) -> Vec<Client> {
    let client = |credential, flags| Client { credential, flags };
    let agent = |name, flags| client(Some(ca.agent(name)), flags);
    let revoked = ca.agent("revoked");
    ca.revoke(&revoked);
    vec![
        client(None, &[]),
        agent("web01", &["--certname", "web01"]),
        agent("web02", &["--certname", "web02"]),
        agent("admin.example", &["--certname", "admin.example"]),
        client(Some(revoked), &[]),
    ]
}

const REVOKED: usize = 4;

#[derive(Debug)]
struct Request {
    client: usize,
    method: &'static str,
    host: &'static str,
    target: String,
    field: Option<(&'static str, &'static str)>,
    source: &'static str,
    sni: &'static str,
}

impl Request {
    fn generate(seed: &mut Seed, clients: &[Client]) -> Self {
        let mut target = (*seed.pick(TARGETS)).to_owned();
        if seed.once_in(3) {
            let (from, to) = *seed.pick(TWISTS);
            target = target.replacen(from, to, 1);
        }
        if seed.once_in(3) {
            let tail: &str = seed.pick::<&str>(TAILS);
            target.push_str(tail);
        }
        Self {
            client: seed.below(clients.len()),
            method: *seed.pick(METHODS),
            host: *seed.pick(HOSTS),
            target,
            field: *seed.pick(FIELDS),
            source: *seed.pick(SOURCES),
            sni: *seed.pick(SERVER_NAMES),
        }
    }

    /// A certificate request for endpoints that check one, with any name.
    fn body(&self) -> Vec<u8> {
        let path = self.target.split('?').next().unwrap_or_default();
        match path.split_once("/certificate_request/") {
            Some((_, name)) if self.method == "PUT" => certificate_request(name),
            _ => Vec::new(),
        }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![("Host", self.host)];
        headers.extend(self.field);
        headers
    }

    /// The request as options of `explain`.
    fn arguments(&self, client: &Client, proxy: &Proxy) -> Vec<String> {
        let mut arguments: Vec<String> = vec![
            format!("https://{}{}", self.host, self.target),
            "--method".to_owned(),
            self.method.to_owned(),
            "--source".to_owned(),
            self.source.to_owned(),
        ];
        // A client that connects by address sends no server name.
        if self.sni.parse::<std::net::IpAddr>().is_err() {
            arguments.extend(["--sni".to_owned(), self.sni.to_owned()]);
        }
        if let Some((name, value)) = self.field {
            arguments.extend(["--header".to_owned(), format!("{name}: {value}")]);
        }
        if client.credential.is_some() && client.flags.is_empty() {
            let file = proxy.directory().join("revoked.pem");
            arguments.extend(["--cert".to_owned(), file.display().to_string()]);
        }
        arguments.extend(client.flags.iter().map(|flag| (*flag).to_owned()));
        arguments
    }
}

/// A member that answers every request with the name of its pool.
fn member(pool: &'static str) -> StandIn {
    let member = StandIn::start(pool);
    member.answer(move |request| {
        (!request.is_probe()).then(|| Reply::ok("here").header("X-Pool", pool))
    });
    member
}

fn pool(name: &str, members: &[&StandIn]) -> String {
    let addresses: Vec<String> = members.iter().map(|member| member.address()).collect();
    format!("[pools.{name}]\nscheme = \"http\"\nmembers = {addresses:?}")
}

const ROUTES: &str = r#"
[[routes]]
name = "forge"
host = ["forge.example"]
path = { prefix = "/v3" }
pool = "forge"
client = "any"

[[routes]]
name = "canary"
header = { X-Canary = "yes" }
certname = ["web*"]
path = { prefix = "/puppet/v3" }
pool = "forge"

[[routes]]
name = "by-query"
query = { environment = "canary" }
source = ["127.0.1.0/24"]
pool = "forge"
classes = ["files"]

[[routes]]
name = "by-cookie"
cookie = { site = "north" }
sni = ["localhost"]
pool = "forge"
client = "any"

[[routes]]
name = "administration"
path = { regex = "/puppet-ca/v1/certificate_status(es)?/.*" }
method = ["GET", "PUT", "DELETE"]
pool = "ca"
allow = ["admin.example"]
classes = ["ca-administration"]

[[access]]
name = "exceptions"
action = "allow"
certname = ["admin.example"]
class = ["own-documents", "services"]

[[access]]
name = "far"
action = "refuse"
source = ["127.0.1.0/24"]
class = ["files", "own-documents"]

[[access]]
name = "watched"
action = "refuse"
certname = ["web02"]
observe = true

[[access]]
name = "no-tasks"
action = "refuse"
route = ["builtin:files", "forge"]
certname = ["web01"]
"#;

const METHODS: &[&str] = &[
    "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH",
];
const HOSTS: &[&str] = &[
    "puppet",
    "puppet:8140",
    "forge.example:8140",
    "FORGE.example",
];
const FIELDS: &[Option<(&str, &str)>] = &[
    None,
    None,
    Some(("X-Canary", "yes")),
    Some(("X-Canary", "no")),
    Some(("X-Client-Verify", "SUCCESS")),
    Some(("X_Canary", "yes")),
    Some(("Cookie", "site=north")),
    Some(("Cookie", "a=b; site=north")),
    Some(("Cookie", "site=north; site=south")),
];
const SOURCES: &[&str] = &["127.0.0.1", "127.0.1.7"];
const SERVER_NAMES: &[&str] = &["puppet", "localhost", "127.0.0.1"];
const TARGETS: &[&str] = &[
    "/",
    "/v3/modules",
    "/v3files",
    "/nowhere",
    "/status/v1/simple",
    "/status/v1/services",
    "/metrics/v2",
    "/puppet-ca/v1/certificate/ca",
    "/puppet-ca/v1/certificate/web01",
    "/puppet-ca/v1/certificate_revocation_list/ca",
    "/puppet-ca/v1/certificate_request/web01",
    "/puppet-ca/v1/certificate_renewal",
    "/puppet-ca/v1/certificate_status/web01",
    "/puppet-ca/v1/certificate_statuses/any",
    "/puppet-ca/v1/sign/all",
    "/puppet-admin-api/v1/environment-cache",
    "/puppet/v3/catalog/web01",
    "/puppet/v3/catalog/web02",
    "/puppet/v3/node/web01",
    "/puppet/v3/facts/web02",
    "/puppet/v3/report/web01",
    "/puppet/v3/file_metadata/modules/x/y",
    "/puppet/v3/file_content/modules/x/y",
    "/puppet/v3/file_bucket_file/md5/d41d8cd98f00b204e9800998ecf8427e",
    "/puppet/v3/static_file_content/modules/x",
    "/puppet/v3/environments",
    "/puppet/v3/tasks",
    "/puppet/v3/compile",
    "/puppet/v4/catalog",
    "/production/catalog/web01",
];
const TWISTS: &[(&str, &str)] = &[
    ("/v3", "//v3"),
    ("/v3", "/%763"),
    ("/v1", "/./v1"),
    ("/v1", "/x/../v1"),
    ("puppet", "Puppet"),
    ("puppet", "%70uppet"),
    ("catalog", "Catalog"),
    ("web01", "WEB01"),
    ("web01", "web%30%31"),
    ("/", "/;a=b/"),
    ("modules", "mod%2Fules"),
];
const TAILS: &[&str] = &[
    "?environment=production",
    "?environment=canary",
    "?environment=canar%79",
    "?environment=canary&environment=canary",
    "/",
    "/extra",
    "%00",
    "%",
    ".pson",
    ";x",
    "?a=/../b",
];
