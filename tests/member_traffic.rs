//! Numbers of each member: requests, durations, failures and share, in the status, on the command line and as metrics.

use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Reply, StandIn, wait_until};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK,
    paths::{CATALOG, FILE},
};

/// How many catalogs each compiler gets. From 20 on, compilers are compared.
const CATALOGS: usize = 20;
/// How long a slow compiler takes for a catalog.
const SLOW: Duration = Duration::from_millis(700);

/// Two compilers that get the same number of requests.
fn two_compilers() -> Estate {
    let pool = format!("algorithm = \"round-robin\"\n{QUICK_CHECK}");
    Estate::builder()
        .compilers(2)
        .one_agent_for_many()
        .compiler_pool(&pool)
        .start()
}

/// Sends requests for catalogs at the same time, and waits for all responses.
fn compile(estate: &Estate, catalogs: usize) {
    let client = estate.agent("web01");
    let connections = (0..catalogs).map(|_| {
        let mut connection = client.connect().expect("connects");
        connection
            .send("POST", CATALOG, &[], b"facts")
            .expect("sends");
        connection
    });
    let connections: Vec<_> = connections.collect();
    for mut connection in connections {
        assert_eq!(connection.read_response().expect("is answered").status, 200);
    }
}

fn compiles_slowly(compiler: &StandIn) {
    compiler.answer(|request| {
        let is_catalog = request.path().starts_with("/puppet/v3/catalog/");
        is_catalog.then(|| Reply::ok("catalog").delay(SLOW))
    });
}

fn fails_at_files(compiler: &StandIn) {
    compiler.answer(|request| {
        let is_file = request.path().starts_with("/puppet/v3/file_content/");
        is_file.then(|| Reply::status(500))
    });
}

/// The traffic of a compiler in the status, once `met` is true for it.
#[track_caller]
fn traffic(estate: &Estate, compiler: usize, met: impl Fn(&Value) -> bool) -> Value {
    let shown = |status: &Value| {
        let pools = status["pools"].as_array().expect("pools").iter();
        let mut compilers = pools.filter(|pool| pool["name"] == "compilers");
        compilers.next().expect("a pool")["members"][compiler]["traffic"].clone()
    };
    let status = estate.wait_for_status("the traffic of a compiler", |status| met(&shown(status)));
    shown(&status)
}

#[test]
fn each_member_has_its_requests_durations_failures_and_share() {
    let estate = two_compilers();
    let [slow, failing] = [0, 1].map(|index| &estate.compilers[index]);
    compiles_slowly(slow);
    fails_at_files(failing);
    compile(&estate, 4);
    let client = estate.agent("web01");
    for _ in 0..4 {
        client.get(FILE);
    }

    let numbers = traffic(&estate, 0, |traffic| traffic["requests"] == 4);
    assert!(
        numbers["window_milliseconds"].as_u64() < Some(120_000),
        "{numbers}"
    );
    assert_eq!(numbers["share_percent"], 50, "{numbers}");
    assert_eq!(numbers["failures"], json!({}), "{numbers}");
    assert_eq!(numbers["work"]["catalog"]["requests"], 2, "{numbers}");
    assert_eq!(numbers["work"]["file"]["requests"], 2, "{numbers}");
    for percentile in ["p50_milliseconds", "p95_milliseconds"] {
        let time = numbers["work"]["catalog"][percentile]
            .as_u64()
            .expect("a number");
        assert!((600..5_000).contains(&time), "{percentile}: {numbers}");
    }
    let numbers = traffic(&estate, 1, |traffic| traffic["requests"] == 4);
    assert_eq!(numbers["failures"], json!({ "5xx": 2 }), "{numbers}");
    assert_eq!(numbers["work"]["catalog"]["requests"], 2, "{numbers}");
    assert_eq!(numbers["work"]["file"], Value::Null, "{numbers}");

    let shown = estate.proxy.command(&["status"], &["--members"]).stdout;
    let line = |member: &StandIn| {
        let found = shown.lines().find(|line| line.contains(&member.address()));
        found.unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    assert!(line(failing).contains("(5xx)"), "{shown}");
    assert!(!line(slow).contains("(5xx)"), "{shown}");
    assert!(line(slow).contains("50 %"), "{shown}");

    let metrics = estate.proxy.metrics();
    let count = |member: &StandIn, work: &str| {
        let address = member.address();
        let labels = [
            ("pool", "compilers"),
            ("member", address.as_str()),
            ("work", work),
        ];
        metrics.sum("proscenium_attempt_duration_seconds_count", &labels)
    };
    assert_eq!((count(slow, "catalog"), count(slow, "file")), (2.0, 2.0));
    assert_eq!(
        (count(failing, "catalog"), count(failing, "file")),
        (2.0, 0.0)
    );
    let failed =
        [("member", &*failing.address()), ("failure", "5xx")].map(|(n, v)| (n, v.to_owned()));
    let failed: Vec<_> = failed
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert_eq!(
        metrics.sum("proscenium_member_failed_responses_total", &failed),
        2.0
    );
}

#[test]
fn a_compiler_that_is_slower_than_its_neighbours_is_marked_until_it_leaves() {
    let estate = two_compilers();
    compiles_slowly(&estate.compilers[0]);
    compile(&estate, 2 * CATALOGS);
    let address = estate.compilers[0].address();
    let slow = traffic(&estate, 0, |traffic| traffic["slow"].is_object());
    let p95 = slow["slow"]["p95_milliseconds"].as_u64();
    assert!(p95 >= Some(500), "{slow}");
    assert_eq!(traffic(&estate, 1, |_| true)["slow"], Value::Null);
    let alarms = [("alarm", "slow-member")];
    estate.wait_for_metric("proscenium_alarms", &alarms, 1.0);
    estate.wait_for_event(&format!(
        "member {address} of pool compilers is slow: catalogs take"
    ));
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let line = format!("    {address}: slow: catalogs take ");
    assert!(shown.contains(&line), "{shown}");
    let shown = estate.proxy.command(&["status"], &["--members"]).stdout;
    let mut lines = shown.lines();
    let is_marked = |line: &str| line.contains(&address) && line.ends_with("  slow");
    assert!(lines.any(is_marked), "{shown}");

    let both: Vec<_> = estate.compilers.iter().map(StandIn::address).collect();
    estate.edit_config(
        &format!("members = {both:?}"),
        &format!("members = {:?}", &both[1..]),
    );
    estate.proxy.reload_applied();
    let metrics = estate.proxy.admin("GET", "/metrics").text();
    assert!(!metrics.contains(&address), "{metrics}");
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_alarms", &alarms),
        0.0
    );
}

#[test]
fn failures_are_counted_by_kind() {
    let estate = Estate::builder().compilers(1).start();
    let client = estate.agent("web01");
    let compiler = &estate.compilers[0];
    let failed = |kind: &str, before: f64, fails: &dyn Fn()| {
        let kind = [("kind", kind)];
        let count = || {
            estate
                .proxy
                .metrics()
                .sum("proscenium_failures_total", &kind)
        };
        assert_eq!(count(), before, "{kind:?}");
        fails();
        let counted = wait_until(LIMIT, || (count() == before + 1.0).then_some(()));
        assert!(counted.is_some(), "{kind:?}: {}", count());
    };
    failed("refused", 0.0, &|| {
        assert_eq!(
            client
                .get("/puppet/v3/catalog/other?environment=production")
                .status,
            403
        );
    });
    failed("here", 0.0, &|| {
        compiler.answer(|_| Some(Reply::hang_up()));
        assert_eq!(client.request("POST", CATALOG, &[], b"facts").status, 502);
    });
    failed("member", 0.0, &|| {
        compiler.answer(|_| Some(Reply::status(500)));
        assert_eq!(client.get(FILE).status, 500);
    });
    failed("cut", 0.0, &|| {
        compiler.answer(|_| Some(Reply::stream(1_000).close_after(10)));
        assert!(client.try_request("GET", FILE, &[], b"").is_err());
    });
    let numbers = traffic(&estate, 0, |_| true);
    assert_eq!(
        numbers["failures"],
        json!({ "receive": 1, "5xx": 1, "cut": 1 })
    );
    let status = estate.proxy.status();
    assert_eq!(status["rates"]["failures"], 3, "{}", status["rates"]);
    assert!(
        status["rates"]["requests"].as_u64() >= Some(4),
        "{}",
        status["rates"]
    );
    let counted = estate.proxy.admin("GET", "/v1/traffic").text();
    let counted: Value = serde_json::from_str(&counted).expect("JSON");
    let kinds = json!({ "here": 1, "member": 1, "refused": 1, "cut": 1 });
    assert_eq!(counted["failures"], kinds);
    assert_eq!(counted["codes"]["4xx"], 1, "{counted}");
}
