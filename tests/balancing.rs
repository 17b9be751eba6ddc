//! Who is asked: algorithms, checks, retries, connections kept and limited, members that are not to be trusted.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rcgen::DnType;
use serde_json::Value;
use testkit::{Ca, Client, Connection, Credential, Manner, Reply, Response, StandIn, wait_until};

use crate::support::{
    self, Estate, EstateBuilder, LIMIT, QUICK_CHECK, assert_refused, certificate_request,
};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const REPORT: &str = "/puppet/v3/report/web01?environment=production";
const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";
const CSR: &str = "/puppet-ca/v1/certificate_request/web02";
const SIGN: &str = "/puppet-ca/v1/certificate_request/web03";
/// A name that no resolver has (RFC 2606).
const NOWHERE: &str = "no-such-member.invalid:8140";
/// Members without probes: what they are held for comes from requests alone.
const UNPROBED: &str = "check = { type = \"none\" }";
/// One thread, so that connections are kept in one place.
const ONE_WORKER: &str = "workers = 1";

fn connection(estate: &Estate) -> Connection {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).connect().expect("connects")
}

fn one_worker(estate: EstateBuilder) -> EstateBuilder {
    estate.proxy(|proxy| proxy.top(ONE_WORKER))
}

/// Requests that each compiler has seen.
fn shares(estate: &Estate) -> Vec<usize> {
    estate
        .compilers
        .iter()
        .map(|compiler| compiler.requests().len())
        .collect()
}

#[track_caller]
fn assert_unavailable(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    let seconds: u64 = response
        .headers
        .only("retry-after")
        .parse()
        .expect("seconds");
    assert!((10..=30).contains(&seconds), "{seconds}");
}

/// Sends requests one after the other and leaves each unanswered; the connections stay open with what is returned.
fn pending(estate: &Estate, n: usize) -> Vec<Connection> {
    (1..=n)
        .map(|sent| {
            let mut connection = connection(estate);
            connection.send("GET", FILE, &[], b"").expect("sends");
            let seen = || shares(estate).iter().sum::<usize>();
            let arrived = wait_until(LIMIT, || (seen() >= sent).then_some(()));
            assert!(
                arrived.is_some(),
                "request {sent} reached nobody: {:?}",
                shares(estate)
            );
            connection
        })
        .collect()
}

#[track_caller]
fn answered(estate: &Estate, connections: Vec<Connection>) {
    estate.compilers.iter().for_each(StandIn::release);
    for mut connection in connections {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
}

// Algorithms.

#[test]
fn the_member_with_the_fewest_requests_in_flight_for_its_weight_is_asked() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(3)
        .compiler(3, "weight = 2")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 8);
    assert_eq!(shares(&estate), [2, 2, 4]);
    answered(&estate, connections);
}

#[test]
fn least_connections_follows_what_is_in_flight_and_not_what_was() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"least-connections\"")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let slow = pending(&estate, 1);
    let busy = shares(&estate)
        .iter()
        .position(|n| *n == 1)
        .expect("one of them");
    let free = 1 - busy;
    estate.compilers[free].release();
    for _ in 0..6 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    assert_eq!((shares(&estate)[busy], shares(&estate)[free]), (1, 6));
    answered(&estate, slow);
}

#[test]
fn round_robin_goes_by_weight_and_smoothly() {
    let estate = one_worker(Estate::builder())
        .compilers(3)
        .compiler_pool("algorithm = \"round-robin\"")
        .compiler(1, "weight = 3")
        .start();
    let mut connection = connection(&estate);
    let mut order = Vec::new();
    for _ in 0..20 {
        let text = connection.request("POST", CATALOG, &[], b"facts").json();
        order.push(text["compiler"].as_str().expect("a name").to_owned());
    }
    let mut count = BTreeMap::new();
    order
        .iter()
        .for_each(|name| *count.entry(name.as_str()).or_insert(0) += 1);
    assert_eq!(count, BTreeMap::from([("c1", 12), ("c2", 4), ("c3", 4)]));
    let runs = order
        .windows(3)
        .filter(|three| three.iter().all(|name| name == "c1"))
        .count();
    assert_eq!(runs, 0, "five turns are c1 c2 c1 c3 c1: {order:?}");
}

#[test]
fn random_shares_by_weight_and_in_no_order() {
    let estate = one_worker(Estate::builder())
        .compilers(3)
        .compiler_pool("algorithm = \"random\"")
        .compiler(1, "weight = 8")
        .start();
    let mut connection = connection(&estate);
    let mut order = Vec::new();
    for _ in 0..400 {
        let answer = connection.request("POST", CATALOG, &[], b"facts").json();
        order.push(answer["compiler"].as_str().expect("a name").to_owned());
    }
    // 320 are fair, and 80 for the other two together; even so it is no rotation, which never leaves its period.
    let shares = shares(&estate);
    assert!(
        shares[0] > 240 && shares[1] > 5 && shares[2] > 5,
        "{shares:?}"
    );
    let period = order
        .windows(20)
        .filter(|twenty| twenty[..10] == twenty[10..])
        .count();
    assert!(period < 300, "{order:?}");
}

#[test]
fn random_keeps_away_from_a_member_that_is_busy() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"random\"")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let slow = pending(&estate, 1);
    let busy = shares(&estate).iter().position(|n| *n == 1).expect("one");
    let free = 1 - busy;
    estate.compilers[free].release();
    for _ in 0..40 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    // Of two members both are drawn each time, and one is always idle.
    assert_eq!((shares(&estate)[busy], shares(&estate)[free]), (1, 40));
    answered(&estate, slow);
}

/// Which compiler each client address comes to, one request each.
fn homes(estate: &Estate) -> BTreeMap<u8, String> {
    let agent = estate.client(&estate.ca.agent("web01"));
    let home = |n: u8| {
        let client = agent.clone().source([127, 0, 2, n].into());
        let answer = client.request("POST", CATALOG, &[], b"facts").json();
        (n, answer["compiler"].as_str().expect("a name").to_owned())
    };
    (1..=40).map(home).collect()
}

#[test]
fn a_client_stays_with_its_member_and_one_that_leaves_moves_its_own_alone() {
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool("algorithm = \"source-hash\"")
        .start();
    let before = homes(&estate);
    let mut names: Vec<_> = before.values().collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "the addresses spread: {before:?}");
    assert_eq!(homes(&estate), before, "over other connections and workers");
    // Neither the certificate nor what a request says of its sender counts.
    let (other, address) = (estate.ca.agent("web02"), [127, 0, 2, 1].into());
    let client = estate.client(&other).source(address);
    let fields = [("X-Forwarded-For", "127.0.2.9"), ("X-Real-IP", "127.0.2.9")];
    estate.forget();
    client.request("GET", FILE, &fields, b"");
    assert_eq!(estate.only_request().member, before[&1]);

    let second = estate.compilers[1].address();
    let administer = |verb| {
        support::set_state(&estate.proxy, verb, "compilers", &second);
    };
    administer("drain");
    for (n, home) in homes(&estate) {
        assert!(
            home == before[&n] || before[&n] == "c2",
            "127.0.2.{n}: {home}"
        );
        assert_ne!(home, "c2");
    }
    administer("ready");
    assert_eq!(homes(&estate), before, "and they come back");
}

#[test]
fn a_clients_requests_go_on_where_its_member_refuses() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"source-hash\"")
        .compiler_pool(UNPROBED)
        .start();
    estate.compilers[0].kill();
    let homes = homes(&estate);
    assert!(homes.values().all(|home| home == "c2"), "{homes:?}");
}

#[test]
fn explain_tells_the_member_that_a_clients_address_leads_to() {
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool("algorithm = \"source-hash\"\ncheck = { type = \"none\" }")
        .start();
    for (n, home) in homes(&estate).into_iter().take(12) {
        let (source, index) = (format!("127.0.2.{n}"), home[1..].parse::<usize>());
        let member = estate.compilers[index.expect("c1, c2 or c3") - 1].address();
        let arguments = [CATALOG, "--certname", "web01", "--source", &source];
        let told = estate.proxy.command(&["explain"], &arguments).stdout;
        let first = told.lines().find(|line| line.starts_with("member"));
        let expected = format!("member   {member}: selected by the hash of the client's address");
        assert_eq!(first, Some(&*expected), "{told}");
    }
    let told = estate
        .proxy
        .command(&["explain"], &[CATALOG, "--certname", "web01"]);
    assert!(told.stdout.contains("(--source is not set)"), "{told:?}");
}

#[test]
fn a_member_gets_no_more_than_its_max_and_a_full_queue_is_a_503() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compiler(1, "max = 1")
        .compiler(2, "max = 2")
        .proxy(|proxy| proxy.with("[upstream]\nclient_share = \"100%\"\nqueue_max = 0"))
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 3);
    assert_eq!(shares(&estate), [1, 2]);
    assert_eq!(connection(&estate).get(FILE).status, 503);
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 503);
    assert_eq!(record["reason"], "queue-full");
    answered(&estate, connections);
    assert_eq!(connection(&estate).get(FILE).status, 200);
}

#[test]
fn a_filebuckets_file_is_found_where_it_was_put() {
    let estate = Estate::builder().compilers(3).start();
    let (web01, web02) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let mut seen = BTreeMap::new();
    for n in 0..24 {
        let path = format!("/puppet/v3/file_bucket_file/sha256/{n:064x}//etc/motd");
        assert_eq!(
            estate
                .client(&web01)
                .request("PUT", &path, &[], b"motd")
                .status,
            200
        );
        assert_eq!(estate.client(&web02).get(&path).text(), "motd", "{path}");
        *seen
            .entry(estate.far_end().pop().expect("a request").member)
            .or_insert(0) += 1;
        estate.forget();
    }
    assert_eq!(seen.len(), 3, "the checksums spread: {seen:?}");
}

#[test]
fn a_pool_called_filebucket_takes_the_filebuckets_files() {
    let bucket = StandIn::start("bucket");
    let table = format!(
        "[pools.filebucket]\nscheme = \"http\"\nmembers = [\"{}\"]",
        bucket.address()
    );
    let estate = Estate::builder()
        .proxy(move |proxy| proxy.with(&table))
        .start();
    estate.proxy.wait_for_members(&["filebucket"]);
    let path = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";
    assert_eq!(
        connection(&estate)
            .request("PUT", path, &[], b"motd")
            .status,
        200
    );
    assert_eq!(
        (bucket.last().target.as_str(), shares(&estate)),
        (path, vec![0, 0])
    );
}

#[test]
fn the_cas_writes_go_to_its_first_server_and_nowhere_else() {
    let second = StandIn::builder("ca2").ca(&Ca::new()).start();
    let address = second.address();
    // Two CA servers, the first of which is the estate's own.
    let estate = Estate::builder().start();
    let first = estate.ca_server.address();
    estate.proxy.edit_config(
        &format!("members = [\"{first}\"]"),
        &format!("members = [\"{first}\", \"{address}\"]"),
    );
    estate.proxy.reload_applied();
    estate.proxy.wait_for_members(&["ca"]);
    for n in 0..6 {
        let target = format!("/puppet-ca/v1/certificate_request/new{n}");
        assert_eq!(
            estate
                .anonymous()
                .request(
                    "PUT",
                    &target,
                    &[],
                    &certificate_request(&format!("new{n}"))
                )
                .status,
            200
        );
    }
    assert!(second.requests().is_empty());
    for _ in 0..6 {
        estate.anonymous().get("/puppet-ca/v1/certificate/ca");
    }
    assert!(
        !second.requests().is_empty(),
        "what changes nothing may be asked of both"
    );
    estate.ca_server.kill();
    second.forget();
    for (target, name) in [(CSR, "web02"), (SIGN, "web03")] {
        let body = certificate_request(name);
        assert_unavailable(&estate.anonymous().request("PUT", target, &[], &body));
    }
    assert!(
        second.requests().is_empty(),
        "not even while the first is down"
    );
}

// Backups.

#[test]
fn a_backup_is_asked_only_while_no_other_member_is_available() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(3)
        .compiler(3, "backup = true")
        .compiler_pool(QUICK_CHECK)
        .start();
    let health = |n: usize, health| {
        let address = estate.compilers[n - 1].address();
        estate.proxy.wait_for_health("compilers", &address, health);
    };
    let shares_of = |requests: usize| {
        estate.forget();
        for _ in 0..requests {
            let response = connection(&estate).request("POST", CATALOG, &[], b"facts");
            assert_eq!(response.status, 200, "{response:?}");
        }
        shares(&estate)
    };
    health(3, "up");
    assert_eq!(shares_of(8), [4, 4, 0]);
    estate.compilers[0].kill();
    health(1, "down");
    assert_eq!(shares_of(4), [0, 4, 0]);
    estate.compilers[1].kill();
    health(2, "down");
    assert_eq!(shares_of(4), [0, 0, 4]);
    assert_eq!(
        estate.anonymous().get("/status/v1/simple").text(),
        "running"
    );
    estate.compilers[0].restart();
    health(1, "up");
    assert_eq!(shares_of(4), [4, 0, 0]);
    let told = estate.proxy.status()["pools"].to_string();
    assert_eq!(told.matches("\"backup\":true").count(), 1, "{told}");
}

#[test]
fn a_backup_takes_what_the_others_have_no_place_for() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compiler(1, "max = 2")
        .compiler(2, "backup = true")
        .proxy(|proxy| proxy.with("[upstream]\nclient_share = \"100%\""))
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 4);
    assert_eq!(shares(&estate), [2, 2]);
    answered(&estate, connections);
    assert_eq!(connection(&estate).get(FILE).status, 200);
    assert_eq!(shares(&estate), [3, 2], "and no more once there is one");
}

#[test]
fn a_member_that_broke_off_is_still_there_and_its_backup_is_not_asked() {
    let estate = Estate::builder().compiler(2, "backup = true").start();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::reset));
    let mut connection = connection(&estate);
    for _ in 0..3 {
        assert_refused(&connection.get(FILE), 502, &["closed the connection"]);
    }
    assert_eq!(shares(&estate)[1], 0);
}

/// An estate whose second CA server is a backup, without probes: what is known of either comes from requests.
fn backed_up() -> (Estate, StandIn) {
    let second = StandIn::builder("ca2").ca(&Ca::new()).start();
    let estate = Estate::builder().ca_pool(UNPROBED).start();
    let (first, backup) = (estate.ca_server.address(), second.address());
    estate.proxy.edit_config(
        &format!("members = [\"{first}\"]"),
        &format!("members = [{{ address = \"{backup}\", backup = true }}, \"{first}\"]"),
    );
    estate.proxy.reload_applied();
    (estate, second)
}

fn write_to_ca(estate: &Estate, n: usize) -> Response {
    let target = format!("/puppet-ca/v1/certificate_request/new{n}");
    let body = certificate_request(&format!("new{n}"));
    estate.anonymous().request("PUT", &target, &[], &body)
}

#[test]
fn a_second_ca_server_gets_reads_and_writes_only_while_the_first_is_down() {
    let (estate, second) = backed_up();
    let read = || {
        estate
            .anonymous()
            .get("/puppet-ca/v1/certificate/ca")
            .status
    };
    for n in 0..4 {
        assert_eq!((write_to_ca(&estate, n).status, read()), (200, 200));
    }
    assert!(second.requests().is_empty());

    // The request that finds nobody there goes on to the backup: no byte of it has gone anywhere.
    estate.ca_server.kill();
    assert_eq!(write_to_ca(&estate, 5).status, 200);
    let seen = second.requests();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].text().starts_with("-----BEGIN CERTIFICATE REQUEST"));
    let record = estate
        .proxy
        .wait_for_record(|record| record["member"] == *second.address());
    assert_eq!(record["attempts"], 2, "{record}");
    assert_eq!((write_to_ca(&estate, 6).status, read()), (200, 200));

    // A restarted one is tried by requests, and then gets them all again.
    estate.ca_server.restart();
    let back = wait_until(LIMIT, || {
        estate.ca_server.forget();
        read();
        (!estate.ca_server.requests().is_empty()).then_some(())
    });
    assert!(back.is_some());
    second.forget();
    for n in 7..10 {
        assert_eq!((write_to_ca(&estate, n).status, read()), (200, 200));
    }
    assert!(second.requests().is_empty());
}

#[test]
fn no_second_ca_server_gets_a_write_that_may_have_arrived() {
    let (estate, second) = backed_up();
    for fault in [Reply::reset, Reply::hang_up] {
        estate.ca_server.forget();
        estate.ca_server.answer(move |_| Some(fault()));
        let response = write_to_ca(&estate, 1);
        assert_refused(&response, 502, &["may have acted on this request"]);
        assert_eq!(estate.ca_server.requests().len(), 1);
        assert!(second.requests().is_empty());
    }

    // It reads the request whole, and dies with it.
    estate.ca_server.answer_as_puppet();
    estate.ca_server.forget();
    estate.ca_server.hold();
    let mut waiting = estate.anonymous().connect().expect("connects");
    waiting
        .send("PUT", CSR, &[], &certificate_request("web02"))
        .expect("sends");
    let arrived = |seen: &[testkit::Recorded]| seen.iter().any(|request| request.complete);
    estate.ca_server.wait_for(LIMIT, arrived);
    estate.ca_server.kill();
    let response = waiting.read_response().expect("an answer");
    assert_refused(&response, 502, &["may have acted on this request"]);
    assert!(second.requests().is_empty());
    // The agent comes again with a request of its own, and finds nobody there.
    assert_eq!(write_to_ca(&estate, 2).status, 200);
    assert_eq!(second.requests().len(), 1);
}

#[test]
fn a_ca_server_that_is_there_and_cannot_be_trusted_is_not_passed_by() {
    let (ca, other) = (Ca::new(), Ca::other());
    let first = StandIn::builder("ca1")
        .tls(&ca, &other.server("ca1"))
        .start();
    let second = tls(&ca, &ca.server("ca2"));
    let pool = format!(
        "[pools.odd]\nmembers = [\"{}\", {{ address = \"{}\", backup = true }}]\n{UNPROBED}\n\
         [[routes]]\nname = \"ca\"\npath = {{ prefix = \"/puppet-ca\" }}\npool = \"odd\"",
        first.address(),
        second.address()
    );
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| proxy.with(&pool))
        .start();
    // It may be at work for others, and its trouble with us is not its death.
    assert_refused(&write_to_ca(&estate, 1), 502, &["nothing was sent"]);
    assert!(first.requests().is_empty() && second.requests().is_empty());
}

#[test]
fn a_ca_server_taken_out_by_the_operator_leaves_the_writes_to_its_backup() {
    let (estate, second) = backed_up();
    let first = estate.ca_server.address();
    for (n, verb) in [(0, "drain"), (2, "maintenance")] {
        let administer = |verb| {
            support::set_state(&estate.proxy, verb, "ca", &first);
        };
        administer(verb);
        second.forget();
        assert_eq!(write_to_ca(&estate, n).status, 200);
        assert_eq!(second.requests().len(), 1, "{verb}");
        administer("ready");
        estate.proxy.wait_for_health("ca", &first, "up");
        assert_eq!(write_to_ca(&estate, n + 1).status, 200);
        assert_eq!(second.requests().len(), 1);
    }
    let told = estate
        .proxy
        .command(&["explain"], &[CSR, "--method", "PUT"])
        .stdout;
    let place = |words: &str| {
        told.find(words)
            .unwrap_or_else(|| panic!("{words}: {told}"))
    };
    let backup = format!("member   {} (backup)", second.address());
    assert!(place(&format!("member   {first}, ")) < place(&backup));
}

// Checks.

/// What the health of the only compiler is after a probe answered so, with this check.
fn probed(check: &str) -> Estate {
    Estate::builder()
        .compilers(1)
        .compiler_pool(&format!("check = {{ interval = \"20ms\", {check} }}"))
        .start()
}

fn wait_for(estate: &Estate, health: &str) {
    estate
        .proxy
        .wait_for_health("compilers", &estate.compilers[0].address(), health);
}

/// Answers probes as told and counts them.
fn answer_probes(member: &StandIn, reply: Reply) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    member.answer(move |request| {
        let is_check = request.is_probe() && !request.is_jruby_reading();
        is_check.then(|| {
            counter.fetch_add(1, Ordering::SeqCst);
            reply.clone()
        })
    });
    count
}

#[test]
fn a_check_by_http_wants_200_and_running() {
    let estate = probed("type = \"http\", rise = 1, fall = 1");
    for bad in [
        Reply::ok("starting"),
        Reply::status(503).body(b"running"),
        Reply::status(404),
        Reply::hang_up(),
        Reply::reset(),
        Reply::raw("nonsense"),
    ] {
        answer_probes(&estate.compilers[0], bad);
        wait_for(&estate, "down");
        assert_unavailable(&connection(&estate).get(FILE));
        estate.compilers[0].answer_as_puppet();
        wait_for(&estate, "up");
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    let probe = estate.compilers[0].probes().remove(0);
    assert_eq!(
        (probe.method.as_str(), probe.target.as_str()),
        ("GET", "/status/v1/simple")
    );
    assert_eq!(
        probe.only("x-client-verify"),
        "NONE",
        "a probe claims to be nobody"
    );
}

#[test]
fn a_check_by_tcp_asks_for_a_connection_only() {
    let estate = probed("type = \"tcp\", rise = 1, fall = 1");
    assert!(estate.compilers[0].probes().is_empty());
    estate.compilers[0].kill();
    wait_for(&estate, "down");
    estate.compilers[0].restart();
    wait_for(&estate, "up");
    assert!(estate.compilers[0].probes().is_empty());
}

/// An estate of one compiler that something on another port answers for.
fn answered_for(agent: &StandIn, estate: EstateBuilder, check: &str) -> Estate {
    let port = agent.socket_address().port();
    estate
        .compilers(1)
        .compiler_pool(&format!(
            "check = {{ port = {port}, interval = \"20ms\", rise = 1, fall = 1, {check} }}"
        ))
        .start()
}

#[test]
fn a_check_on_a_port_of_its_own_is_up_with_200_and_down_with_anything_else() {
    for estate in [Estate::builder(), Estate::builder().tls_members()] {
        let agent = StandIn::start("agent");
        agent.answer(|_| Some(Reply::ok("whatever it says")));
        let estate = answered_for(&agent, estate, "type = \"http\"");
        for bad in [
            Reply::status(503).body(b"running"),
            Reply::status(404),
            Reply::status(302).header("Location", "/"),
            Reply::status(204),
            Reply::raw("HTTP/1.1 2000 OK\r\n\r\n"),
            Reply::raw("HTTP/2 200 OK\r\n\r\n"),
            Reply::raw("HTTP/1.1 200"),
            Reply::raw("200 OK\r\n\r\n"),
            Reply::raw(" ".repeat(1 << 20)),
            Reply::hang_up(),
            Reply::reset(),
        ] {
            agent.answer(move |_| Some(bad.clone()));
            wait_for(&estate, "down");
            assert_unavailable(&connection(&estate).get(FILE));
            agent.answer(|_| Some(Reply::raw("HTTP/1.0 200\n")));
            wait_for(&estate, "up");
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        let probe = agent.last();
        assert_eq!((probe.method.as_str(), probe.target.as_str()), ("GET", "/"));
        assert_eq!(probe.only("host"), agent.address());
        assert!(
            estate.compilers[0].probes().is_empty(),
            "itself is not asked"
        );
        // Stopped, it takes its member out, which goes on serving whoever asks it directly.
        agent.kill();
        wait_for(&estate, "down");
        agent.restart();
        wait_for(&estate, "up");
    }
}

#[test]
fn a_member_on_a_unix_socket_is_answered_for_on_this_machine() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c1.sock");
    let (member, agent) = (
        StandIn::builder("unix").unix(&path).start(),
        StandIn::start("agent"),
    );
    let estate = odd(&format!(
        "scheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ port = {}, interval = \"20ms\", fall = 1 }}",
        member.address(),
        agent.socket_address().port()
    ))
    .start();
    let health = |health| {
        estate
            .proxy
            .wait_for_health("odd", &member.address(), health);
    };
    agent.answer(|_| Some(Reply::status(200)));
    health("up");
    agent.answer(|_| Some(Reply::status(503)));
    health("down");
}

#[test]
fn a_script_that_answers_without_reading_and_closes_is_understood() {
    let script = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = script.local_addr().expect("bound").port();
    let well = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&well);
    thread::spawn(move || {
        use std::io::Write;
        for mut socket in script.incoming().flatten() {
            let status = match told.load(Ordering::SeqCst) {
                true => "200 OK",
                false => "503 Service Unavailable",
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: Content-Type: text/plain\r\n\r\nPuppet\r\n"
            );
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    let estate = probed(&format!("port = {port}, rise = 1, fall = 3"));
    wait_for(&estate, "up");
    well.store(false, Ordering::SeqCst);
    wait_for(&estate, "down");
    estate
        .proxy
        .wait_for_event("answered `HTTP/1.1 503 Service Unavailable`");
    well.store(true, Ordering::SeqCst);
    wait_for(&estate, "up");
    assert!(estate.compilers[0].probes().is_empty());
}

#[test]
fn a_check_by_tcp_on_a_port_of_its_own_asks_for_a_connection_there() {
    let agent = StandIn::start("agent");
    let estate = answered_for(&agent, Estate::builder().tls_members(), "type = \"tcp\"");
    agent.kill();
    wait_for(&estate, "down");
    agent.restart();
    wait_for(&estate, "up");
    assert!(agent.requests().is_empty() && agent.probes().is_empty());
    assert!(estate.compilers[0].probes().is_empty());
}

#[test]
fn a_legacy_check_asks_as_masters_of_old_are_asked() {
    for members in [Estate::builder(), Estate::builder().tls_members()] {
        let estate = members
            .compilers(1)
            .compiler_pool("check = { type = \"legacy\", interval = \"20ms\", rise = 1, fall = 1 }")
            .start();
        let compiler = &estate.compilers[0];
        for bad in [
            Reply::ok("running"),
            Reply::ok("{\"is_alive\":false}"),
            Reply::ok(""),
            Reply::status(403).body(b"Forbidden request: \"is_alive\":true"),
            Reply::status(404).body(b"{\"is_alive\":true}"),
            Reply::hang_up(),
        ] {
            answer_probes(compiler, bad);
            wait_for(&estate, "down");
            assert_unavailable(&connection(&estate).get(FILE));
            answer_probes(
                compiler,
                Reply::ok("{\"is_alive\":true,\"version\":\"2.7.26\"}"),
            );
            wait_for(&estate, "up");
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        let probe = compiler.probes().remove(0);
        assert_eq!(
            (probe.method.as_str(), probe.target.as_str()),
            ("GET", "/production/status/no_key")
        );
        assert_eq!(
            (probe.only("accept"), probe.only("x-client-verify")),
            ("pson", "NONE")
        );
        estate
            .proxy
            .wait_for_event(r#"wanted 200 `\"is_alive\":true`"#);
    }
}

#[test]
fn without_a_check_a_member_is_up_until_it_refuses_and_back_when_it_answers() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(UNPROBED)
        .start();
    estate.compilers[0].kill();
    wait_for(&estate, "up");
    assert_unavailable(&connection(&estate).get(FILE));
    wait_for(&estate, "down");
    estate.compilers[0].restart();
    let back = wait_until(LIMIT, || {
        (connection(&estate).get(FILE).status == 200).then_some(())
    });
    assert!(back.is_some(), "tried again without a probe");
    wait_for(&estate, "up");
    assert_eq!(estate.compilers[0].probes().len(), 0);
}

#[test]
fn a_member_goes_down_after_fall_bad_probes_and_up_after_rise_good_ones() {
    for (rise, fall) in [(1, 1), (40, 30)] {
        let estate = probed(&format!("rise = {rise}, fall = {fall}"));
        let bad = answer_probes(&estate.compilers[0], Reply::status(503));
        wait_for(&estate, "down");
        let bad = bad.load(Ordering::SeqCst);
        assert!(bad >= fall, "down after {bad} bad probes, fall = {fall}");
        let good = answer_probes(&estate.compilers[0], Reply::ok("running"));
        wait_for(&estate, "up");
        let good = good.load(Ordering::SeqCst);
        assert!(good >= rise, "up after {good} good probes, rise = {rise}");
    }
}

#[test]
fn fewer_bad_probes_than_fall_change_nothing() {
    let estate = probed("rise = 1, fall = 5");
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = Arc::clone(&turn);
    // Four bad, one good, for ever: never five in a row, and more than the default of three.
    estate.compilers[0].answer(move |request| {
        let is_check = request.is_probe() && !request.is_jruby_reading();
        is_check.then(|| match turns.fetch_add(1, Ordering::SeqCst) % 5 {
            4 => Reply::ok("running"),
            _ => Reply::status(503),
        })
    });
    wait_until(LIMIT, || (turn.load(Ordering::SeqCst) >= 20).then_some(())).expect("probed");
    wait_for(&estate, "up");
    assert!(
        !estate.proxy.stderr().contains("ProbesFailed"),
        "{}",
        estate.proxy.stderr()
    );
}

#[test]
fn a_probe_has_its_timeout() {
    let estate = probed("timeout = \"50ms\", rise = 1, fall = 1");
    let gate = testkit::Gate::new();
    answer_probes(&estate.compilers[0], Reply::ok("running").gate(&gate));
    wait_for(&estate, "down");
    estate.proxy.wait_for_event("within 50ms");
    estate.compilers[0].answer_as_puppet();
    gate.release();
    wait_for(&estate, "up");
}

#[test]
fn probes_come_at_their_interval() {
    // With the default of 5 s there would be two in the first ten seconds; the second one says that it is not.
    let (often, never) = (
        probed("rise = 1"),
        Estate::builder()
            .compilers(1)
            .compiler_pool("check = { interval = \"1h\" }")
            .start(),
    );
    let seen = wait_until(LIMIT, || {
        (often.compilers[0].probes().len() >= 20).then_some(())
    });
    assert!(seen.is_some());
    assert_eq!(never.compilers[0].probes().len(), 1);
}

#[test]
fn a_member_never_probed_is_not_asked_and_comes_up_on_its_first_good_probe() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"20ms\", rise = 50, fall = 1 }")
        .unready()
        .start();
    wait_for(&estate, "up");
    assert!(
        estate.compilers[0].probes().len() < 50,
        "not after `rise` of them"
    );
    // One that was up needs them all.
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    let good = answer_probes(&estate.compilers[0], Reply::ok("running"));
    wait_for(&estate, "up");
    assert!(good.load(Ordering::SeqCst) >= 50);
}

#[test]
fn a_member_counts_as_up_before_its_first_probe_if_the_check_says_so() {
    for (assume_up, status) in [(true, 200), (false, 503)] {
        // A member that accepts and leaves a probe unanswered: the first one is never done.
        let gate = testkit::Gate::new();
        let hanging = StandIn::start("hanging");
        let reply = Reply::ok("running").gate(&gate);
        hanging.answer(move |request| request.is_probe().then(|| reply.clone()));
        let tables = format!(
            "[pools.slow]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ timeout = \"1h\", assume_up = {assume_up} }}\n\
             [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"slow\"",
            hanging.address()
        );
        let estate = Estate::builder()
            .compilers(1)
            .proxy(move |proxy| proxy.with(&tables))
            .start();
        assert_eq!(connection(&estate).get(FILE).status, status);
        gate.release();
    }
}

#[test]
fn a_refused_connect_takes_a_member_down_until_its_next_good_probe() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"1500ms\", rise = 9, fall = 9 }")
        .start();
    estate.compilers[0].kill();
    assert_unavailable(&connection(&estate).get(FILE));
    wait_for(&estate, "down");
    // By the request, not by nine probes.
    estate.proxy.wait_for_event("ConnectRefused");
    estate.compilers[0].restart();
    let probes = estate.compilers[0].probes().len();
    wait_for(&estate, "up");
    let needed = estate.compilers[0].probes().len() - probes;
    assert!(
        needed < 9,
        "{needed} probes for one that had never failed one"
    );
}

// What goes again, and what never does.

#[test]
fn a_request_goes_to_the_other_member_when_one_refuses() {
    let estate = Estate::builder().compiler_pool(UNPROBED).start();
    estate.compilers[0].kill();
    for (method, target, body) in [
        ("POST", CATALOG, &b"facts"[..]),
        ("PUT", REPORT, b"{}"),
        ("GET", FILE, b""),
    ] {
        for _ in 0..3 {
            assert_eq!(
                connection(&estate)
                    .request(method, target, &[], body)
                    .status,
                200,
                "{method}"
            );
        }
    }
    assert_eq!(shares(&estate), [0, 9]);
    let retried = estate
        .proxy
        .wait_for_records(9)
        .iter()
        .filter(|record| record["attempts"] == 2)
        .count();
    assert!(retried >= 1, "one of them met the dead one first");
}

#[test]
fn no_more_members_are_tried_than_attempts_max() {
    for most in [1, 2, 4] {
        let estate = Estate::builder()
            .compilers(5)
            .compiler_pool(UNPROBED)
            .proxy(move |proxy| proxy.with(&format!("[upstream]\nattempts_max = {most}")))
            .start();
        estate.compilers.iter().for_each(StandIn::kill);
        assert_unavailable(&connection(&estate).get(FILE));
        let record = estate
            .proxy
            .wait_for_record(|record| record["status"] == 503);
        assert_eq!(
            (&record["attempts"], &record["reason"]),
            (&most.into(), &"connect-refused".into())
        );
    }
}

#[test]
fn a_get_goes_again_after_a_reset_before_the_first_byte() {
    let estate = one_worker(Estate::builder()).start();
    let mut connection = connection(&estate);
    // Both members have a connection that is kept.
    estate.compilers.iter().for_each(StandIn::hold);
    let both = pending(&estate, 2);
    answered(&estate, both);
    let kept: Vec<_> = estate
        .compilers
        .iter()
        .map(|compiler| compiler.last().connection)
        .collect();
    estate.forget();
    let failed = Arc::new(AtomicBool::new(false));
    for compiler in &estate.compilers {
        let failed = Arc::clone(&failed);
        compiler.answer(move |request| {
            (!request.is_probe() && !failed.swap(true, Ordering::SeqCst)).then(Reply::reset)
        });
    }
    assert_eq!(connection.get(FILE).status, 200);
    let mut seen = shares(&estate);
    seen.sort_unstable();
    assert_eq!(seen, [1, 1], "the other member was asked");
    let reused = estate
        .compilers
        .iter()
        .zip(kept)
        .filter(|(compiler, kept)| compiler.last().connection == *kept);
    assert!(reused.count() >= 1, "the reset one had been used before");
}

#[test]
fn a_get_goes_again_to_the_only_member_where_a_kept_connection_broke() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    assert_eq!(connection.get(FILE).status, 200);
    estate.forget();
    let failed = AtomicBool::new(false);
    estate.compilers[0].answer(move |request| {
        (!request.is_probe() && !failed.swap(true, Ordering::SeqCst)).then(Reply::reset)
    });
    assert_eq!(connection.get(FILE).status, 200);
    let seen = estate.far_end();
    assert_eq!(seen.len(), 2);
    assert_ne!(
        seen[0].connection, seen[1].connection,
        "on a new connection"
    );
    // What breaks on a new connection is the member's doing.
    estate.forget();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::reset));
    assert_eq!(connection.get(FILE).status, 502);
    assert!(estate.far_end().len() <= 2, "{:?}", shares(&estate));
}

#[test]
fn a_connection_that_closes_just_then_loses_no_get_and_doubles_no_post() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    let mut answered = 0;
    for n in 0..150 {
        assert_eq!(connection.get(FILE).status, 200);
        estate.compilers[0].close_connections();
        assert_eq!(connection.get(FILE).status, 200, "GET {n}");
        estate.compilers[0].close_connections();
        let target = format!("{CATALOG}&n={n}");
        let response = connection.request("POST", &target, &[], b"facts");
        assert!([200, 502].contains(&response.status), "{response:?}");
        answered += usize::from(response.status == 200);
        let seen = estate
            .far_end()
            .iter()
            .filter(|request| request.target == target)
            .count();
        assert!(seen <= 1, "{n}");
    }
    assert!(answered > 0);
}

#[test]
fn a_get_does_not_go_again_once_a_byte_of_an_answer_has_come() {
    for answer in ["HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 abc\r\n\r\n", "H"] {
        let estate = Estate::start();
        for compiler in &estate.compilers {
            compiler.answer(move |request| (!request.is_probe()).then(|| Reply::raw(answer)));
        }
        assert_refused(
            &connection(&estate).get(FILE),
            502,
            &["closed the connection"],
        );
        assert_eq!(estate.far_end().len(), 1, "{answer:?}");
    }
}

#[test]
fn what_may_have_been_acted_on_is_never_sent_twice() {
    for fault in [Reply::reset, Reply::hang_up] {
        let estate = Estate::builder().start();
        for compiler in estate.members() {
            compiler.answer(move |request| (!request.is_probe()).then(fault));
        }
        let csr = certificate_request("web02");
        for (method, target, body) in [
            ("POST", CATALOG, &b"facts"[..]),
            ("GET", CATALOG, b""),
            ("PUT", REPORT, b"{}"),
            ("PUT", "/puppet/v3/facts/web01", b"{}"),
            ("POST", "/puppet/v3/file_metadatas/plugins", b"x"),
            ("PUT", "/puppet/v3/file_bucket_file/md5/abc/x", b"x"),
            ("PUT", CSR, &csr),
        ] {
            estate.forget();
            let response = connection(&estate).request(method, target, &[], body);
            assert_refused(
                &response,
                502,
                &["may have acted on this request", "not sent to another"],
            );
            assert_eq!(estate.far_end().len(), 1, "{method} {target}");
        }
    }
}

#[test]
fn what_is_safe_goes_to_another_when_a_compiler_says_that_it_is_stopping() {
    let estate = Estate::start();
    let stopping = |reply: fn() -> Reply| {
        estate.compilers[0].answer(move |request| (!request.is_probe()).then(reply));
    };
    stopping(|| Reply::status(503).body(b"during a shutdown"));
    let mut connection = connection(&estate);
    for _ in 0..6 {
        assert_eq!(connection.get(FILE).status, 200);
    }
    let asked = estate.compilers[0].requests().len();
    assert!(asked > 0, "the stopping one was never asked");
    estate
        .proxy
        .wait_for_record(|record| record["attempts"] == 2 && record["status"] == 200);

    // A catalog is never sent twice, whatever its compiler says.
    estate.forget();
    let statuses: Vec<_> = (0..6)
        .map(|_| connection.request("POST", CATALOG, &[], b"facts").status)
        .collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    assert_eq!(estate.far_end().len(), statuses.len());

    // A compiler whose queue is full says when to come back: asking another would only move the herd.
    stopping(|| Reply::status(503).header("Retry-After", "7"));
    estate.forget();
    let statuses: Vec<_> = (0..6).map(|_| connection.get(FILE).status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    assert_eq!(estate.far_end().len(), statuses.len());
}

#[test]
fn a_compiler_killed_during_a_catalog_is_a_clear_502_and_no_other_sees_it() {
    let estate = Estate::start();
    estate.compilers.iter().for_each(StandIn::hold);
    let mut waiting = connection(&estate);
    waiting.send("POST", CATALOG, &[], b"facts").expect("sends");
    let seen = wait_until(LIMIT, || {
        estate
            .compilers
            .iter()
            .position(|c| c.requests().iter().any(|r| r.complete))
    });
    let busy = seen.expect("one of them has it");
    estate.compilers[busy].kill();
    let response = waiting.read_response().expect("an answer");
    assert_refused(
        &response,
        502,
        &[&estate.compilers[busy].address(), "closed the connection"],
    );
    assert!(estate.compilers[1 - busy].requests().is_empty());
    estate.compilers[1 - busy].release();
    assert_eq!(
        connection(&estate)
            .request("POST", CATALOG, &[], b"facts")
            .status,
        200,
        "the next run"
    );
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 502);
    assert_eq!(
        (&record["reason"], &record["attempts"]),
        (&"member-closed".into(), &1.into())
    );
}

#[test]
fn a_request_that_met_a_closing_connection_unsent_is_sent_on_a_new_one() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    for _ in 0..40 {
        assert_eq!(
            connection.request("POST", CATALOG, &[], b"facts").status,
            200
        );
        // The member closes what is kept, as Jetty does; the next request meets it closed and noticed.
        estate.compilers[0].close_connections();
        let noticed = || estate.compilers[0].connections_open() == 0;
        wait_until(LIMIT, || noticed().then_some(())).expect("it ends");
    }
    assert_eq!(shares(&estate), [40]);
}

// Connections.

#[test]
fn connections_are_kept_and_used_again() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let probes = estate.compilers[0].connections_accepted();
    let mut connection = connection(&estate);
    for _ in 0..10 {
        assert_eq!(
            connection.request("POST", CATALOG, &[], b"facts").status,
            200
        );
    }
    let numbers: std::collections::BTreeSet<_> = estate
        .far_end()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(numbers.len(), 1, "{probes} before");
}

#[test]
fn a_kept_connection_is_closed_before_the_member_would_do_it() {
    for by_pool in [false, true] {
        let mut estate = one_worker(Estate::builder())
            .compilers(1)
            .compiler_pool("check = { interval = \"1h\" }");
        estate = match by_pool {
            true => estate
                .compiler_pool("keepalive = \"0s\"")
                .proxy(|proxy| proxy.with("[upstream]\nkeepalive = \"29s\"")),
            false => estate.proxy(|proxy| proxy.with("[upstream]\nkeepalive = \"0s\"")),
        };
        let estate = estate.start();
        let mut connection = connection(&estate);
        for _ in 0..3 {
            assert_eq!(connection.get(FILE).status, 200);
        }
        let numbers: std::collections::BTreeSet<_> = estate
            .far_end()
            .iter()
            .map(|request| request.connection)
            .collect();
        assert_eq!(numbers.len(), 3, "none was used again");
        let closed = wait_until(LIMIT, || {
            (estate.compilers[0].connections_open() == 0).then_some(())
        });
        assert!(closed.is_some(), "and none stands idle");
    }
}

#[test]
fn nobody_starves_at_a_member_with_one_connection() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(1)
        .compiler_pool("connections_max = 1")
        .proxy(|proxy| proxy.top("workers = 4"))
        .start();
    crowd(&estate, 12, 60);
    assert_eq!(shares(&estate), [720]);
}

/// Many clients at a member with few connections: all are served, by no more than so many at once.
fn crowd(estate: &Estate, clients: usize, requests: usize) {
    let agent = estate.ca.agent("web01");
    let crowd: Vec<_> = (0..clients)
        .map(|_| {
            let client = estate.client(&agent);
            thread::spawn(move || {
                let mut connection = client.connect().expect("connects");
                (0..requests)
                    .map(|_| connection.request("POST", CATALOG, &[], b"facts").status)
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    for client in crowd {
        let statuses = client.join().expect("no panic");
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    }
}

#[test]
fn no_more_connections_than_connections_max_over_all_workers() {
    for (upstream, pool) in [
        ("connections_max = 2", ""),
        ("connections_max = 100", "connections_max = 2"),
    ] {
        let estate = Estate::builder()
            .one_agent_for_many()
            .compilers(1)
            .compiler_pool(pool)
            .compiler_pool("connect_timeout = \"1h\"")
            .compiler_pool("check = { interval = \"1h\" }")
            .proxy(move |proxy| {
                proxy
                    .top("workers = 4")
                    .with(&format!("[upstream]\nclient_share = \"100%\"\n{upstream}"))
            })
            .start();
        let probe = estate.compilers[0].connections_accepted();
        estate.compilers[0].hold();
        let mut waiting: Vec<_> = (0..12).map(|_| connection(&estate)).collect();
        for connection in &mut waiting {
            connection.send("GET", FILE, &[], b"").expect("sends");
        }
        estate.proxy.wait_for_status("ten wait", |status| {
            status["pools"].to_string().contains("\"waiting\":10")
        });
        estate.compilers[0].wait_for_request(2, LIMIT);
        assert_eq!(estate.compilers[0].connections_accepted() - probe, 2);
        answered(&estate, waiting);
        assert_eq!(shares(&estate), [12]);
        // Busy clients at so few connections: none is left waiting for one that stands idle elsewhere.
        crowd(&estate, 12, 25);
        assert_eq!(shares(&estate), [312]);
    }
}

#[test]
fn a_worker_at_the_limit_gets_an_idle_connection_of_another_closed() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"1h\" }")
        .compiler_pool("connections_max = 1")
        .proxy(|proxy| proxy.top("workers = 4"))
        .start();
    // Each client connection is one worker's: sooner or later another one's than where the idle one stands.
    for _ in 0..24 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    assert_eq!(shares(&estate), [24]);
}

#[test]
fn a_request_that_has_waited_for_queue_wait_max_is_answered_503() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("connections_max = 1")
        .compiler_pool("queue_wait_max = \"200ms\"")
        .start();
    estate.compilers[0].hold();
    let first = pending(&estate, 1);
    assert_eq!(connection(&estate).get(FILE).status, 503);
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 503);
    assert_eq!(record["reason"], "queue-timeout");
    answered(&estate, first);
}

// Members that cannot be reached, or not be trusted.

/// A pool `odd` with these lines, reached by files.
fn odd(lines: &str) -> EstateBuilder {
    let tables = format!(
        "[pools.odd]\n{lines}\n[[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
    );
    Estate::builder()
        .compilers(1)
        .proxy(move |proxy| proxy.with(&tables))
}

#[test]
fn a_name_that_does_not_resolve_is_a_member_that_is_down_and_others_serve() {
    for check in ["check = { interval = \"20ms\" }", UNPROBED] {
        let good = StandIn::start("good");
        let estate = odd(&format!(
            "scheme = \"http\"\nplaintext = \"trusted-network\"\nmembers = [\"{NOWHERE}\", \"{}\"]\n{check}",
            good.address()
        ))
        .start();
        estate.proxy.wait_for_health("odd", &good.address(), "up");
        for _ in 0..4 {
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        assert_eq!(good.requests().len(), 4);
        estate.proxy.wait_for_health("odd", NOWHERE, "down");
    }
}

#[test]
fn nobody_resolved_is_nobody_available() {
    let estate = odd(&format!("members = [\"{NOWHERE}\"]\n{UNPROBED}")).start();
    assert_unavailable(&connection(&estate).get(FILE));
    let record = estate
        .proxy
        .wait_for_record(|record| record["route"] == "odd");
    assert_eq!(record["reason"], "name-unresolved", "{record}");
    assert!(
        record["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("does not resolve")),
        "{record}"
    );
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: connecting a datagram socket only chooses a route (RFC 5737 addresses go nowhere).
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .filter(|address| !address.ip().is_loopback())
}

#[test]
fn plain_http_to_another_machine_is_refused_by_the_configuration_unless_it_says_so() {
    let lines = |plaintext: &str| {
        format!("[pools.ca]\nscheme = \"http\"\nmembers = [\"192.0.2.1:8140\"]\n{plaintext}")
    };
    let check = |plaintext: &str| {
        support::proxy(&Ca::new())
            .with(&lines(plaintext))
            .with("[pools.compilers]\nmembers = [\"c1:8140\"]")
            .check()
    };
    let refused = check("");
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!((refused.stdout + &refused.stderr).contains("would leave this machine"));
    assert_eq!(check("plaintext = \"trusted-network\"").code, Some(0));
}

#[test]
fn plain_http_to_another_address_goes_out_only_where_the_network_is_trusted() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but loopback: nothing to show");
        return;
    };
    let Ok(listener) = TcpListener::bind((address.ip(), 0)) else {
        eprintln!("{address} cannot be bound: nothing to show");
        return;
    };
    let member = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            answer_once(&mut socket);
        }
    });
    let estate = odd(&format!(
        "scheme = \"http\"\nplaintext = \"trusted-network\"\nmembers = [\"{member}\"]\n{UNPROBED}"
    ))
    .start();
    assert_eq!(connection(&estate).get(FILE).text(), "hi");
}

fn answer_once(socket: &mut TcpStream) {
    use std::io::{Read, Write};
    let mut head = [0; 4096];
    if socket.read(&mut head).is_ok_and(|n| n > 0) {
        let _ = socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    }
}

/// The answer and the record of a request for a file that comes from one TLS member, and nobody else.
fn tls_member_of(ca: &Ca, member: &StandIn, lines: &str) -> (Response, Value) {
    let port = member.socket_address().port();
    let lines = lines.replace("{port}", &port.to_string());
    let estate = odd(&format!("{lines}\n{UNPROBED}")).ca(ca).start();
    let response = connection(&estate).get(FILE);
    let record = estate
        .proxy
        .wait_for_record(|record| record["route"] == "odd");
    (response, record)
}

fn tls(ca: &Ca, credential: &Credential) -> StandIn {
    StandIn::builder("tls").tls(ca, credential).start()
}

#[track_caller]
fn assert_untrusted(answer: &(Response, Value), words: &[&str]) {
    let (response, record) = answer;
    assert_refused(response, 502, &["nothing was sent"]);
    assert_eq!(
        (&record["status"], &record["reason"]),
        (&502.into(), &"member-tls-failed".into()),
        "{record}"
    );
    let cause = record["cause"].as_str().unwrap_or_default();
    for word in words {
        assert!(cause.contains(word), "{word:?} is not in {cause:?}");
    }
}

#[test]
fn a_member_must_carry_the_name_it_is_called_by() {
    let ca = Ca::new();
    let member = tls(
        &ca,
        &ca.leaf("c1.example.com").dns("c1.example.com").issue(),
    );
    assert_untrusted(
        &tls_member_of(&ca, &member, "members = [\"localhost:{port}\"]"),
        &["c1.example.com", "localhost"],
    );
    assert!(member.requests().is_empty());
    let named = "members = [{ address = \"localhost:{port}\", server_name = \"c1.example.com\" }]";
    assert_eq!(tls_member_of(&ca, &member, named).0.status, 200);
    let wrong = "members = [{ address = \"localhost:{port}\", server_name = \"c2.example.com\" }]";
    assert_untrusted(&tls_member_of(&ca, &member, wrong), &["c2.example.com"]);
}

#[test]
fn a_member_without_a_subject_alt_name_is_told_of_as_such() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.leaf("localhost").without_san().issue());
    assert_untrusted(
        &tls_member_of(&ca, &member, "members = [\"localhost:{port}\"]"),
        &["subjectAltName"],
    );
}

#[test]
fn a_member_without_a_subject_alt_name_is_good_for_its_cn_where_the_pool_says_so() {
    let ca = Ca::new();
    let from_cn = |lines: &str| format!("{lines}\ntls = {{ name_from_cn = true }}");
    let named = |name: &str| {
        from_cn(&format!(
            "members = [{{ address = \"localhost:{{port}}\", server_name = \"{name}\" }}]"
        ))
    };
    let old = ca.leaf("c1.example.com").without_san().issue();
    let member = tls(&ca, &old);
    for name in ["c1.example.com", "C1.example.com"] {
        assert_eq!(tls_member_of(&ca, &member, &named(name)).0.status, 200);
    }
    let upstream =
        "members = [{ address = \"localhost:{port}\", server_name = \"c1.example.com\" }]";
    assert_untrusted(&tls_member_of(&ca, &member, upstream), &["name_from_cn"]);
    member.forget();
    for name in ["example.com", "c1", "c11.example.com", "a.c1.example.com"] {
        let words = [name, "CN=c1.example.com", "server_name"];
        assert_untrusted(&tls_member_of(&ca, &member, &named(name)), &words);
    }
    // Neither a wildcard nor an address is a name there.
    for (cn, name) in [
        ("*.example.com", "c1.example.com"),
        ("127.0.0.1", "127.0.0.1"),
    ] {
        let member = tls(&ca, &ca.leaf(cn).without_san().issue());
        assert_untrusted(&tls_member_of(&ca, &member, &named(name)), &[cn]);
        assert!(member.requests().is_empty());
    }
    // A subjectAltName says that the CN is not meant.
    let other = ca.leaf("other.example.com");
    let other = other.subject(&[(DnType::CommonName, "c1.example.com")]);
    let member_of_names = tls(&ca, &other.issue());
    assert_untrusted(
        &tls_member_of(&ca, &member_of_names, &named("c1.example.com")),
        &["other.example.com"],
    );
    assert!(member_of_names.requests().is_empty());
    // The chain is verified all the same.
    ca.revoke(&old);
    assert_untrusted(
        &tls_member_of(&ca, &member, &named("c1.example.com")),
        &["revoked"],
    );
    assert!(member.requests().is_empty());
}

#[test]
fn a_pool_says_for_itself_whether_a_cn_is_a_name() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.leaf("localhost").without_san().issue());
    let port = member.socket_address().port();
    for (above, own, status) in [
        ("true", "", 200),
        ("true", "tls = { name_from_cn = false }", 502),
        ("false", "tls = { name_from_cn = true }", 200),
    ] {
        let estate = odd(&format!(
            "members = [\"localhost:{port}\"]\n{own}\n{UNPROBED}"
        ))
        .ca(&ca)
        .proxy(move |proxy| proxy.with(&format!("[upstream.tls]\nname_from_cn = {above}")))
        .start();
        assert_eq!(
            connection(&estate).get(FILE).status,
            status,
            "{above} {own}"
        );
    }
}

#[test]
fn a_revoked_member_is_not_spoken_to() {
    let ca = Ca::new();
    let credential = ca.server("c1");
    let member = tls(&ca, &credential);
    let lines = "members = [\"127.0.0.1:{port}\"]";
    assert_eq!(tls_member_of(&ca, &member, lines).0.status, 200);
    ca.revoke(&credential);
    member.forget();
    assert_untrusted(&tls_member_of(&ca, &member, lines), &["revoked"]);
    assert!(member.requests().is_empty());
}

#[test]
fn a_member_of_another_ca_is_not_spoken_to_unless_its_pool_trusts_that_ca() {
    let (ca, other) = (Ca::new(), Ca::other());
    let member = StandIn::builder("tls")
        .tls(&ca, &other.server("c1"))
        .start();
    let lines = "members = [\"127.0.0.1:{port}\"]";
    assert_untrusted(&tls_member_of(&ca, &member, lines), &[]);
    assert!(member.requests().is_empty());
    for table in ["[pools.odd.tls]", "[upstream.tls]"] {
        let port = member.socket_address().port();
        let tables = format!(
            "[pools.odd]\nmembers = [\"127.0.0.1:{port}\"]\n{UNPROBED}\n{table}\nca = \"{{dir}}/other.pem\"\ncrl = \"{{dir}}/other-crl.pem\"\n\
             [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
        );
        let (bundle, crl) = (other.bundle_pem(), other.crl_pem());
        let estate = Estate::builder()
            .ca(&ca)
            .proxy(move |proxy| {
                proxy.with(&tables).file("other.pem", &bundle, 0o644).file(
                    "other-crl.pem",
                    &crl,
                    0o644,
                )
            })
            .start();
        assert_eq!(connection(&estate).get(FILE).status, 200, "{table}");
    }
}

#[test]
fn members_see_the_credential_that_is_set_for_them() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.server("c1"));
    let port = member.socket_address().port();
    for table in ["[pools.odd.tls]", "[upstream.tls]"] {
        let own = ca.agent("frontend");
        let tables = format!(
            "[pools.odd]\nmembers = [\"127.0.0.1:{port}\"]\n{UNPROBED}\n{table}\nchain = \"{{dir}}/own.pem\"\nkey = \"{{dir}}/own.key\"\n\
             [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
        );
        let (chain, key, der) = (own.chain_pem(), own.key_pem.clone(), own.cert_der.clone());
        let estate = Estate::builder()
            .ca(&ca)
            .proxy(move |proxy| {
                proxy
                    .with(&tables)
                    .file("own.pem", &chain, 0o644)
                    .file("own.key", &key, 0o600)
            })
            .start();
        assert_eq!(connection(&estate).get(FILE).status, 200, "{table}");
        assert_eq!(
            member.last().peer_certificates.first(),
            Some(&der),
            "{table}"
        );
    }
}

#[test]
fn a_member_on_a_unix_socket_serves() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c1.sock");
    let member = StandIn::builder("unix").unix(&path).start();
    let estate = odd(&format!(
        "scheme = \"http\"\nmembers = [\"{}\"]",
        member.address()
    ))
    .start();
    estate.proxy.wait_for_members(&["odd"]);
    assert_eq!(connection(&estate).get(FILE).status, 200);
    assert_eq!(member.requests().len(), 1);
}

#[test]
fn a_member_that_speaks_no_tls_is_a_502_and_sees_no_request() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = plain.local_addr().expect("bound");
    thread::spawn(move || {
        for mut socket in plain.incoming().flatten() {
            answer_once(&mut socket);
        }
    });
    let estate = odd(&format!("members = [\"{address}\"]\n{UNPROBED}")).start();
    let response = connection(&estate).get(FILE);
    let record = estate
        .proxy
        .wait_for_record(|record| record["route"] == "odd");
    assert_untrusted(&(response, record), &[&address.to_string()]);
}

/// What status says to a load balancer in front of us.
#[test]
fn status_is_answered_by_us_as_compilers_are_available() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let paths = [
        "/status/v1/simple",
        "/status/v1/simple/server",
        "/status/v1/simple/master",
    ];
    let anyone: Client = estate.anonymous();
    for path in paths {
        let response = anyone.get(path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "running"),
            "{path}"
        );
    }
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    for path in paths {
        let response = anyone.get(path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (503, "error"),
            "{path}"
        );
    }
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_member_in_maintenance_is_probed_and_comes_back_after_rise_good_probes() {
    let estate = probed("rise = 40, fall = 1");
    wait_for(&estate, "up");
    let compiler = &estate.compilers[0];
    let set = |verb: &str| {
        support::set_state(&estate.proxy, verb, "compilers", &compiler.address());
    };
    set("maintenance");
    let good = answer_probes(compiler, Reply::status(200).body(b"running"));
    let probed_on = wait_until(LIMIT, || (good.load(Ordering::SeqCst) > 2).then_some(()));
    assert!(probed_on.is_some(), "probes go on in maintenance");
    let before = good.load(Ordering::SeqCst);
    set("ready");
    wait_for(&estate, "up");
    let since = good.load(Ordering::SeqCst) - before;
    assert!(since >= 40, "up after {since} good probes, rise = 40");
}

#[test]
fn a_pool_without_an_available_member_is_an_alarm_until_one_is_available() {
    let estate = probed("rise = 1, fall = 1");
    wait_for(&estate, "up");
    let labels = [("alarm", "pool-unavailable")];
    let alarms = || estate.proxy.metrics().sum("proscenium_alarms", &labels);
    let available = || {
        let pool = [("pool", "compilers")];
        let metrics = estate.proxy.metrics();
        metrics.sum("proscenium_pool_members_available", &pool)
    };
    assert_eq!((alarms(), available()), (0.0, 1.0));
    let compiler = &estate.compilers[0];
    answer_probes(compiler, Reply::status(503));
    wait_for(&estate, "down");
    estate
        .proxy
        .wait_for_event("no member of pool compilers is available");
    assert_eq!((alarms(), available()), (1.0, 0.0));
    let status = estate.proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "pool-unavailable:compilers", "{status:#}");
    assert!(alarm["since"].is_string(), "{status:#}");
    let pools = status["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|pool| pool["name"] == "compilers");
    let pool = pool.expect("the pool of compilers");
    assert_eq!(pool["available"], 0);
    let member = &pool["members"][0];
    assert_eq!(member["why"], "probes-failed", "{member:#}");
    assert!(member["since"].is_string(), "{member:#}");
    let failure = member["last_probe"]["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("503"), "{member:#}");
    let told = estate.proxy.command(&["status"], &[]).stdout;
    assert!(
        told.contains("ALARM since") && told.contains("503"),
        "{told}"
    );
    answer_probes(compiler, Reply::status(200).body(b"running"));
    estate
        .proxy
        .wait_for_event("cleared: no member of pool compilers is available");
    assert_eq!((alarms(), available()), (0.0, 1.0));
    assert_eq!(estate.proxy.status()["alarms"], Value::Array(Vec::new()));
}

#[test]
fn a_clock_that_differs_from_those_of_most_members_is_an_alarm_until_they_agree() {
    let check = QUICK_CHECK;
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool(check)
        .ca_pool("check = { type = \"tcp\" }")
        .start();
    let alarms = || {
        let labels = [("alarm", "clock-offset")];
        estate.proxy.metrics().sum("proscenium_alarms", &labels)
    };
    let offsets = || {
        let status = estate.proxy.status();
        let pools = status["pools"].as_array().expect("pools").clone();
        let members = pools.into_iter().flat_map(|pool| {
            let members = pool["members"].as_array().expect("members").clone();
            members
                .into_iter()
                .map(|m| m["clock_offset_seconds"].clone())
        });
        members.map(|offset| offset.as_i64()).collect::<Vec<_>>()
    };
    let wait_for_offset = |member: usize, expected: i64| {
        let shown = wait_until(LIMIT, || {
            let offset = *offsets().iter().filter(|o| o.is_some()).nth(member)?;
            ((offset? - expected).abs() <= 5).then_some(())
        });
        assert!(shown.is_some(), "{member}: {expected}: {:?}", offsets());
    };
    let set = |member: usize, ahead: i64| {
        estate.compilers[member].behave(Manner::headers().clock_ahead(ahead));
    };
    [0, 0, -7200]
        .iter()
        .enumerate()
        .for_each(|(member, ahead)| set(member, *ahead));
    // One of three: an event, and a line of the status.
    estate
        .proxy
        .wait_for_event("the member's clock differs from the proxy's by more than 300 s");
    wait_for_offset(2, -7200);
    assert_eq!(alarms(), 0.0);
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let line = format!(
        "{}: its clock is 2 h behind the proxy's",
        estate.compilers[2].address()
    );
    assert!(shown.contains(&line), "{shown}");
    // Two of three: the proxy's clock is in doubt.
    set(0, -3600);
    let first = estate.compilers[0].address();
    estate
        .proxy
        .wait_for_event("the clocks of 2 of 3 members differ from the proxy's by more than 300 s");
    assert_eq!(alarms(), 1.0);
    let status = estate.proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "clock-offset", "{status:#}");
    let message = alarm["message"].as_str().unwrap_or_default();
    // A `Date` is in whole seconds, and takes its time to arrive.
    let shows_offset =
        (3595..=3605).any(|seconds| message.contains(&format!("{first} is {seconds} s behind")));
    assert!(
        shows_offset && message.contains("check the clock of the proxy's host"),
        "{message}"
    );
    // A member that does not answer shows no other clock.
    estate.compilers[2].stop();
    estate
        .proxy
        .wait_for_health("compilers", &estate.compilers[2].address(), "down");
    assert_eq!(alarms(), 1.0);
    set(0, 0);
    estate
        .proxy
        .wait_for_event("cleared: the clocks of 2 of 3 members");
    assert_eq!(alarms(), 0.0);
    let events = estate.proxy.stderr();
    assert_eq!(
        events.matches("the clocks of 2 of 3 members").count(),
        2,
        "{events}"
    );
    assert!(
        offsets().contains(&None),
        "a check by tcp shows no clock: {:?}",
        offsets()
    );
}

/// Answers each connection with this, once it has sent something, and closes it.
fn answer_all(answer: &'static [u8]) -> String {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(answer);
        }
    });
    address
}

#[test]
fn the_status_says_why_a_probe_failed_in_words_of_ours() {
    let (ca, other) = (Ca::new(), Ca::other());
    let credential = ca.server("c1");
    let replying = |reply: Reply| {
        let member = tls(&ca, &credential);
        answer_probes(&member, reply);
        member
    };
    let hanging_up = replying(Reply::hang_up());
    let malformed = replying(Reply::raw("HTTP/1.1 ok\r\n\r\n"));
    let short = replying(Reply::raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nrunning",
    ));
    let distrusting = StandIn::builder("distrusting")
        .tls_wanting(&other, &credential)
        .start();
    let foreign = tls(&other, &other.server("c1"));
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let refusing = gone.local_addr().expect("bound").to_string();
    drop(gone);
    let cases = [
        (refusing, "cannot connect: connection refused"),
        (
            answer_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "TLS: the member does not speak TLS on this port; it may expect plain HTTP",
        ),
        (
            answer_all(b""),
            "TLS: the member closed the connection during the TLS handshake",
        ),
        (
            answer_all(b"\x15\x03\x03\x00\x02\x02\x46"),
            "TLS: the member sent the TLS alert protocol_version: it does not support the proxy's TLS versions, 1.2 and 1.3",
        ),
        (
            distrusting.address(),
            "the member sent the TLS alert unknown_ca: it does not trust the CA of the proxy's certificate",
        ),
        (foreign.address(), "unknown-issuer"),
        (
            hanging_up.address(),
            "the member closed the connection before the response was complete",
        ),
        (
            malformed.address(),
            "malformed response: invalid HTTP status-code",
        ),
        (
            short.address(),
            "the member closed the connection before the response was complete",
        ),
    ];
    let members: Vec<_> = cases
        .iter()
        .map(|(address, _)| format!("{address:?}"))
        .collect();
    let estate = odd(&format!(
        "members = [{}]\ncheck = {{ interval = \"20ms\" }}",
        members.join(", ")
    ))
    .ca(&ca)
    .start();
    for (address, expected) in &cases {
        let failure = || {
            let status = estate.proxy.status();
            let pools = status["pools"].as_array()?.iter();
            let mut members = pools
                .filter_map(|pool| pool["members"].as_array())
                .flatten();
            let member = members.find(|member| member["address"] == **address)?;
            Some(member["last_probe"]["failure"].as_str()?.to_owned())
        };
        let failure = wait_until(LIMIT, failure).expect("a failed probe");
        assert!(
            failure.contains(expected),
            "{expected:?} is not in {failure:?}"
        );
        for foreign in ["://", "os error", "\n", "\\x"] {
            assert!(!failure.contains(foreign), "{foreign:?} is in {failure:?}");
        }
    }
}
