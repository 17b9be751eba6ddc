//! Set-up of the tests about members that DNS names.

use serde_json::Value;
use testkit::{Ca, NameServer, Proxy, StandIn, srv_records};

use crate::support::{self, paths::CATALOG};

pub(crate) const SERVICE: &str = "_x-puppet._tcp";
pub(crate) const CHECK: &str = "check = { interval = \"20ms\", rise = 1, fall = 1 }\n";

/// `[dns]` with short limits, so that a change is noticed at once.
pub(crate) fn dns(server: &NameServer) -> String {
    let address = server.address();
    format!(
        "[dns]\nservers = [\"{address}\"]\nttl_min = \"100ms\"\nttl_max = \"1s\"\ntimeout = \"1s\"\n"
    )
}

/// A proxy whose compilers DNS names over plain HTTP, with these lines in their pool.
pub(crate) fn proxy(ca: &Ca, server: &NameServer, lines: &str) -> Proxy {
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\n{CHECK}{lines}\n"
    );
    support::proxy(ca).with(&dns(server)).with(&pools).start()
}

pub(crate) fn by_service() -> String {
    format!("members = [\"srv:{SERVICE}.example.com\"]")
}

/// Stand-ins as targets: priority, weight, name.
pub(crate) fn targets(of: &[(u16, u16, &StandIn)]) -> String {
    let targets: Vec<_> = of
        .iter()
        .map(|(priority, weight, member)| {
            let port = member.socket_address().port();
            (*priority, *weight, port, member.name())
        })
        .collect();
    let hosts: String = of
        .iter()
        .map(|(_, _, member)| format!("{} A 127.0.0.1\n", member.name()))
        .collect();
    srv_records(SERVICE, &targets) + &hosts
}

/// A member as the proxy shows it.
pub(crate) fn shown(member: &StandIn) -> String {
    let port = member.socket_address().port();
    format!("{}.example.com:{port}", member.name())
}

pub(crate) fn members(status: &Value, pool: &str) -> Vec<Value> {
    let pools = status["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|known| known["name"] == pool);
    pool.expect("the pool")["members"]
        .as_array()
        .expect("members")
        .clone()
}

pub(crate) fn addresses(status: &Value, pool: &str) -> Vec<String> {
    let members = members(status, pool).into_iter();
    members
        .map(|member| member["address"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Waits until the pool has exactly these members, in this order.
#[track_caller]
pub(crate) fn wait_for_addresses(proxy: &Proxy, pool: &str, wanted: &[String]) {
    let what = format!("members {wanted:?}");
    proxy.wait_for_status(&what, |status| addresses(status, pool) == wanted);
}

#[track_caller]
pub(crate) fn send(proxy: &Proxy, ca: &Ca, times: usize) {
    let client = proxy.client(Some(&ca.agent("web01")));
    for _ in 0..times {
        assert_eq!(client.get(CATALOG).status, 200);
    }
}

/// The active alarm about a name of this pool, if there is one.
pub(crate) fn alarm(status: &Value, about: &str) -> Option<String> {
    let alarms = status["alarms"].as_array()?;
    let key = format!("dns-answer:{about}");
    let found = alarms.iter().find(|alarm| alarm["key"] == *key)?;
    Some(found["message"].as_str()?.to_owned())
}

pub(crate) fn about_compilers() -> String {
    format!("compilers: srv:{SERVICE}.example.com")
}

#[track_caller]
pub(crate) fn wait_for_alarm(proxy: &Proxy, words: &str) {
    wait_for(proxy, &about_compilers(), words);
}

#[track_caller]
pub(crate) fn wait_for_no_alarm(proxy: &Proxy) {
    proxy.wait_for_status("no alarm", |status| {
        alarm(status, &about_compilers()).is_none()
    });
}

#[track_caller]
pub(crate) fn wait_for(proxy: &Proxy, about: &str, words: &str) {
    proxy.wait_for_status(&format!("an alarm with {words:?}"), |status| {
        alarm(status, about).is_some_and(|message| message.contains(words))
    });
}

/// The name of the service, as the status shows it.
pub(crate) fn name_status(status: &Value) -> Value {
    let names = status["dns"].as_array().expect("names");
    let name = format!("srv:{SERVICE}.example.com");
    let found = names.iter().find(|known| known["name"] == *name);
    found.expect("the name").clone()
}
