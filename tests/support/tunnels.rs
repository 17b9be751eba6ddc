//! Set-up of the tests about tunnels.

use testkit::{Client, Reply, TestConnection, TestCredential, wait_until};

use crate::support::{Estate, EstateBuilder, LIMIT};

pub(crate) const CHAT: &str = "/chat/room";
/// The fields of a request for a WebSocket.
pub(crate) const WEBSOCKET: [(&str, &str); 2] =
    [("Connection", "Upgrade"), ("Upgrade", "websocket")];

/// The common part of the routes of these tests.
pub(crate) const ROUTE: &str = "[[routes]]\nname = \"chat\"\npath = { prefix = \"/chat\" }\npool = \"compilers\"\n\
                     upgrade = [\"websocket\"]\n";

/// One compiler that switches to WebSocket on `/chat`, which verified agents may request.
pub(crate) fn chatting() -> Estate {
    start(builder(""))
}

/// The builder of the same estate, with additional lines of the route.
pub(crate) fn builder(more: &str) -> EstateBuilder {
    let route = format!("{ROUTE}{more}");
    Estate::builder().compilers(1).with(&route)
}

pub(crate) fn start(builder: EstateBuilder) -> Estate {
    let estate = builder.start();
    for member in &estate.compilers {
        member.answer(|request| {
            let asked =
                request.path().starts_with("/chat") && request.headers.get("upgrade").is_some();
            asked.then(|| Reply::switching("websocket"))
        });
    }
    estate
}

pub(crate) fn connect(estate: &Estate, agent: &TestCredential) -> TestConnection {
    estate.client(agent).connect().expect("connects")
}

#[track_caller]
pub(crate) fn opened(estate: &Estate, agent: &TestCredential) -> TestConnection {
    opened_by(&estate.client(agent))
}

#[track_caller]
pub(crate) fn opened_by(client: &Client) -> TestConnection {
    let mut tunnel = client.connect().expect("connects");
    tunnel.send("GET", CHAT, &WEBSOCKET, b"").expect("sends");
    assert_eq!(tunnel.read_head().expect("an answer").status, 101);
    tunnel
}

/// Closes a tunnel, and waits until the proxy holds nothing for it.
#[track_caller]
pub(crate) fn end(estate: &Estate, tunnel: TestConnection) {
    drop(tunnel);
    assert_closed(estate);
}

/// Asserts that no tunnel, lease or connection remains.
#[track_caller]
pub(crate) fn assert_closed(estate: &Estate) {
    let left = || {
        let metrics = estate.proxy.metrics();
        [
            metrics.sum("proscenium_tunnels_open", &[]),
            metrics.sum("proscenium_connections_open", &[]),
            f64::from(u32::try_from(in_flight(estate)).unwrap_or(u32::MAX)),
        ]
    };
    let nothing = wait_until(LIMIT, || (left() == [0.0; 3]).then_some(()));
    assert!(
        nothing.is_some(),
        "tunnels, connections, leases: {:?}",
        left()
    );
}

/// The requests in flight at the first compiler.
pub(crate) fn in_flight(estate: &Estate) -> u64 {
    let status = estate.proxy.status();
    let pools = status["pools"].as_array().into_iter().flatten();
    let members = pools.flat_map(|pool| pool["members"].as_array().into_iter().flatten());
    members
        .filter_map(|member| member["in_flight"].as_u64())
        .sum()
}
