//! Headers of distributed traces (W3C Trace Context) pass through the proxy unchanged.

use crate::support::{Estate, paths::CATALOG};

#[test]
fn traceparent_and_tracestate_reach_the_member_unchanged() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let tracestate = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    let fields = [("traceparent", traceparent), ("tracestate", tracestate)];
    let answer = estate.client(&agent).request("GET", CATALOG, &fields, b"");
    assert_eq!(answer.status, 200);
    let requests = estate.compilers[0].requests();
    let request = requests.last().expect("the member was asked");
    assert_eq!(request.headers.get("traceparent"), Some(traceparent));
    assert_eq!(request.headers.get("tracestate"), Some(tracestate));
}
