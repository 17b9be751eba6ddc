//! Kinds of work: what a request is for a Puppet server, and the choice of a member by it.

use testkit::Connection;

use crate::support::{Estate, LIMIT};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";
const STATIC_FILE: &str = "/puppet/v3/static_file_content/modules/motd/files/motd?code_id=1";
const REPORT: &str = "/puppet/v3/report/web01?environment=production";
const NODE: &str = "/puppet/v3/node/web01?environment=production";

fn connection(estate: &Estate) -> Connection {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).connect().expect("connects")
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
        let record = estate
            .proxy
            .wait_for_record(|record| record["target"] == path);
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
