//! `If-Match` across proxies: a change on one proxy fails a later change on another that was decided on the earlier
//! state.

use serde_json::{Value, json};
use testkit::{Client, Proxy, Response, wait_until};

use crate::{
    fleet::Fleet,
    support::{Estate, LIMIT, account, done},
};

const BLOCKS: &str = "/v1/blocks";
const STATES: &str = "/v1/members/state";

fn tag(proxy: &Proxy, path: &str) -> String {
    let response = proxy.admin("GET", path);
    response.headers.only("etag").to_owned()
}

fn post(proxy: &Proxy, path: &str, tag: &str, body: &Value) -> Response {
    let fields = [("Connection", "close"), ("If-Match", tag)];
    let body = body.to_string();
    Client::unix(&proxy.admin_socket()).request("POST", path, &fields, body.as_bytes())
}

/// Waits until two proxies have the same entity tag, and returns it.
#[track_caller]
fn common_tag([first, second]: [&Proxy; 2], path: &str) -> String {
    let common = || Some(tag(first, path)).filter(|found| *found == tag(second, path));
    let common = wait_until(LIMIT, common);
    common.unwrap_or_else(|| panic!("{path}: {}", second.stderr()))
}

/// Asserts that a change with the earlier tag is refused with the author of the other change, and accepted with the
/// present tag.
#[track_caller]
fn check(proxy: &Proxy, path: &str, tags: [&str; 2], body: &Value, author: &[&str]) {
    let [before, now] = tags;
    let refused = post(proxy, path, before, body);
    assert_eq!(refused.status, 412, "{}", refused.text());
    let detail = refused.json()["detail"].to_string();
    for part in author {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let accepted = post(proxy, path, now, body);
    assert_eq!(accepted.status, 200, "{}", accepted.text());
}

fn block(name: &str) -> Value {
    json!({"blocked": {"certname": name}, "why": "lost"})
}

#[test]
fn a_block_on_another_proxy_makes_a_change_of_the_blocks_before_it_fail() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(1).start();
    let [first, second] =
        ["p1", "p2"].map(|name| fleet.proxy_to(name, &servers, 1, &fleet.store.fleet_table()));
    let both = [&first, &second];
    let before = common_tag(both, BLOCKS);
    done(&first, &["block"], &["web01", "--why", "stolen"]);
    let now = common_tag(both, BLOCKS);
    let blocked = format!("{} on p1 blocked certname web01 at ", account());
    let author = [&*blocked, ": stolen"];
    check(&second, BLOCKS, [&before, &now], &block("web02"), &author);
    // Blocked and unblocked: the list is as before, but another operator has changed it meanwhile.
    let before = common_tag(both, BLOCKS);
    done(&second, &["block"], &["web03", "--why", "again"]);
    done(&second, &["unblock"], &["web03"]);
    let now = common_tag(both, BLOCKS);
    let author = [" on p2 lifted the block of certname web03 at "];
    let lift = json!({"certname": "web01"});
    check(&first, "/v1/blocks/lift", [&before, &now], &lift, &author);
    let before = common_tag(both, BLOCKS);
    done(&second, &["block"], &["web06", "--why", "again"]);
    let now = common_tag(both, BLOCKS);
    let several = json!({"certnames": ["web04", "web05"], "why": "rack"});
    let (path, author) = ("/v1/blocks/certnames", [" on p2 blocked certname web06"]);
    check(&first, path, [&before, &now], &several, &author);
}

#[test]
fn a_drain_on_another_proxy_makes_a_change_of_the_member_before_it_fail() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_before(name, &servers));
    let both = [&first, &second];
    let address = servers.compilers[0].address();
    let member = format!("/v1/pools/compilers/members/{address}");
    let drained = format!(
        "{} on p1 set {address} in compilers to drain at ",
        account()
    );
    let one = json!({"state": "maintenance"});
    let all = json!({"members": {"member": address}, "state": "maintenance"});
    for (path, body) in [(&*member, &one), (STATES, &all)] {
        let before = common_tag(both, path);
        done(&first, &["drain"], &[&address, "--why", "disk"]);
        let now = common_tag(both, path);
        let author = [&*drained, ": disk"];
        check(&second, path, [&before, &now], body, &author);
        // The tag that one proxy returns is valid on the other.
        let here = common_tag(both, &member);
        let ready = json!({"state": "ready"});
        assert_eq!(post(&first, &member, &here, &ready).status, 200);
        // Drained and ready again: the state is as before, but it has changed meanwhile.
        let before = common_tag(both, path);
        done(&first, &["drain"], &[&address]);
        done(&first, &["ready"], &[&address]);
        let now = common_tag(both, path);
        let author = format!(" on p1 set {address} in compilers to ready at ");
        check(&second, path, [&before, &now], body, &[&author]);
    }
}

#[test]
fn a_drain_that_this_proxy_withholds_makes_a_change_before_it_fail_too() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    // The second proxy has no other compiler than the first one.
    let second = fleet.proxy_to("p2", &servers, 1, &fleet.store.fleet_table());
    let address = servers.compilers[0].address();
    let member = format!("/v1/pools/compilers/members/{address}");
    let before = tag(&second, &member);
    done(&first, &["drain"], &[&address, "--why", "disk"]);
    second.wait_for_event("withheld");
    let now = tag(&second, &member);
    let author = [" on p1 set ", " to drain at ", ": disk"];
    let ready = json!({"state": "ready"});
    check(&second, &member, [&before, &now], &ready, &author);
}
