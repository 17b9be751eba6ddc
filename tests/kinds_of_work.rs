//! Kinds of work: how requests to a Puppet server are classified, and how members are picked by it.

use testkit::{StandIn, TestConnection, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT,
    paths::{CATALOG, FILE, REPORT},
};

const STATIC_FILE: &str = "/puppet/v3/static_file_content/modules/motd/files/motd?code_id=1";
const NODE: &str = "/puppet/v3/node/web01?environment=production";

fn connection(estate: &Estate) -> TestConnection {
    connection_of(estate, "web01")
}

fn connection_of(estate: &Estate, certname: &str) -> TestConnection {
    let agent = estate.ca.agent(certname);
    estate.client(&agent).connect().expect("connects")
}

/// The number of requests that each compiler received.
fn shares(estate: &Estate) -> Vec<usize> {
    let compilers = estate.compilers.iter();
    compilers
        .map(|compiler| compiler.requests().len())
        .collect()
}

/// Sends requests of different agents one after another; their members receive them and do not answer.
fn held(estate: &Estate, path: &str, n: usize) -> Vec<TestConnection> {
    estate.compilers.iter().for_each(StandIn::hold);
    let seen = || shares(estate).iter().sum::<usize>();
    let before = seen();
    (1..=n)
        .map(|sent| {
            let certname = format!("held{sent:02}");
            let path = path.replace("web01", &certname);
            let mut agent = connection_of(estate, &certname);
            agent.send("GET", &path, &[], b"").expect("sends");
            let arrived = wait_until(LIMIT, || (seen() >= before + sent).then_some(()));
            assert!(
                arrived.is_some(),
                "request {sent} of {path}: {:?}",
                shares(estate)
            );
            agent
        })
        .collect()
}

fn pool_of(lines: &str) -> EstateBuilder {
    Estate::builder().compilers(2).compiler_pool(lines)
}

/// The lines about members that `explain` prints for this agent's request for a file.
fn explained(estate: &Estate, certname: &str) -> Vec<String> {
    let arguments = [FILE, "--certname", certname];
    let shown = estate.proxy.command(&["explain"], &arguments).stdout;
    let members = shown.lines().filter(|line| line.starts_with("member "));
    members.map(str::to_owned).collect()
}

#[test]
fn records_metrics_and_status_show_the_kind_of_work() {
    let estate = Estate::builder().compilers(1).start();
    let mut agent = connection(&estate);
    for (method, path, work) in [
        ("POST", CATALOG, "catalog"),
        ("GET", FILE, "file"),
        ("GET", STATIC_FILE, "file"),
        ("PUT", REPORT, "report"),
        ("GET", NODE, "other"),
    ] {
        assert_eq!(agent.request(method, path, &[], b"").status, 200);
        let record = estate.wait_for_record(|record| record["target"] == path);
        assert_eq!(record["work"], work, "{path}");
    }
    let metrics = estate.proxy.metrics();
    for (work, count) in [
        ("catalog", 1.0),
        ("file", 2.0),
        ("report", 1.0),
        ("other", 1.0),
    ] {
        let labels = [("pool", "compilers"), ("work", work)];
        let counted = metrics.sum("proscenium_request_duration_seconds_count", &labels);
        assert_eq!(counted, count, "{work}");
    }
    let seen = estate.compilers[0].requests().len();
    estate.compilers[0].hold();
    agent.send("GET", FILE, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(seen + 1, LIMIT);
    let status = estate.proxy.status();
    let pools = status["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|pool| pool["name"] == "compilers");
    let member = &pool.expect("the pool exists")["members"][0];
    assert_eq!(
        member["in_flight_by_work"],
        serde_json::json!({ "file": 1 })
    );
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    assert!(shown.contains("1 in flight (1 file)"), "{shown}");
    estate.compilers[0].release();
}

#[test]
fn least_load_is_the_default_and_considers_jrubies_and_kinds_of_work() {
    let estate = pool_of("jrubies = 6").compiler(1, "jrubies = 2").start();
    let members = explained(&estate, "web01");
    let why = "shortest expected wait (0 ms of work in flight, JRubies 6, weight 1)";
    assert!(members.iter().any(|line| line.contains(why)), "{members:?}");
    let catalogs = held(&estate, CATALOG, 4);
    assert_eq!(shares(&estate), [1, 3]);
    let files = held(&estate, FILE, 2);
    estate.compilers.iter().for_each(StandIn::release);
    drop((catalogs, files));
}

#[test]
fn requests_beyond_the_jrubies_wait_and_static_files_do_not() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("jrubies = 2\njruby_load_max = \"150%\"")
        .start();
    let mut running = held(&estate, FILE, 3);
    let mut waits = connection_of(&estate, "web04");
    waits.send("GET", FILE, &[], b"").expect("sends");
    estate.wait_for_metric(
        "proscenium_pool_queue_length",
        &[("pool", "compilers")],
        1.0,
    );
    let mut without = connection_of(&estate, "web05");
    without.send("GET", STATIC_FILE, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(4, LIMIT);
    assert_eq!(estate.compilers[0].requests()[3].target, STATIC_FILE);
    estate.compilers[0].release();
    for agent in running.iter_mut().chain([&mut waits, &mut without]) {
        assert_eq!(agent.read_response().expect("an answer").status, 200);
    }
}

#[test]
fn an_agent_stays_on_its_member_by_its_certname() {
    let estate = pool_of("algorithm = \"certname-hash\"").start();
    for certname in ["web01", "web02", "web03", "web04", "web05", "web06"] {
        let before = shares(&estate);
        for _ in 0..3 {
            assert_eq!(connection_of(&estate, certname).get(FILE).status, 200);
        }
        let after = shares(&estate);
        let got: Vec<usize> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        assert!(got == [3, 0] || got == [0, 3], "{certname}: {got:?}");
        let home = got.iter().position(|got| *got == 3).expect("one has all");
        let first = &explained(&estate, certname)[0];
        let address = estate.compilers[home].address();
        assert!(first.contains(&address), "{first}");
        assert!(
            first.contains("selected by the hash of the certname"),
            "{first}"
        );
    }
}

#[test]
fn first_fills_members_in_their_order() {
    let estate = pool_of("algorithm = \"first\"")
        .compiler(1, "max = 2")
        .start();
    let agents = held(&estate, FILE, 4);
    assert_eq!(shares(&estate), [2, 2]);
    assert!(explained(&estate, "web01")[0].contains("first in the configured order"));
    estate.compilers.iter().for_each(StandIn::release);
    drop(agents);
}

#[test]
fn members_of_the_next_priority_are_used_while_no_better_one_is_available() {
    let estate = pool_of("check = { type = \"none\" }")
        .compiler(1, "priority = 10")
        .compiler(2, "priority = 5")
        .start();
    let mut agent = connection(&estate);
    for _ in 0..4 {
        assert_eq!(agent.get(FILE).status, 200);
    }
    assert_eq!(shares(&estate), [0, 4]);
    let explained = explained(&estate, "web01");
    assert!(explained[0].contains("(priority 5)"), "{explained:?}");
    assert!(explained[1].contains("(priority 10)"), "{explained:?}");
    let second = estate.compilers[1].address();
    estate.proxy.command(&["drain"], &["compilers", &second]);
    assert_eq!(agent.get(FILE).status, 200);
    assert_eq!(shares(&estate), [1, 4]);
}

#[test]
fn a_count_of_jrubies_outside_its_bounds_is_a_configuration_error() {
    for line in ["jrubies = 0", "jrubies = 1001", "jruby_load_max = \"9%\""] {
        let estate = pool_of("jrubies = 4").start();
        let edited = estate.proxy.config_text().replace("jrubies = 4", line);
        estate.write_config(&edited);
        let checked = estate.proxy.command(&["check"], &[]);
        assert!(
            checked
                .stderr
                .contains(line.split(' ').next().expect("a key")),
            "{checked:?}"
        );
    }
}
