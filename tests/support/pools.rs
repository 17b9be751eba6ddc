//! Set-up of the tests about pools and their members.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use testkit::{Ca, Reply, StandIn, TestConnection, TestCredential, wait_until};

use crate::support::{Estate, EstateBuilder, LIMIT, NO_WAIT, connection, paths::FILE};

pub(crate) const CSR: &str = "/puppet-ca/v1/certificate_request/web02";
/// The check of a pool without probes: only requests change the health of its members.
pub(crate) const UNPROBED: &str = "check = { type = \"none\" }";
/// One worker thread, which therefore has all connections to members.
pub(crate) const ONE_WORKER: &str = "workers = 1";

pub(crate) fn one_worker(estate: EstateBuilder) -> EstateBuilder {
    estate.top(ONE_WORKER)
}

/// The number of requests that each compiler received.
pub(crate) fn shares(estate: &Estate) -> Vec<usize> {
    estate
        .compilers
        .iter()
        .map(|compiler| compiler.requests().len())
        .collect()
}

/// Sends requests one after another, which the members receive and do not answer; the returned connections stay open.
pub(crate) fn pending(estate: &Estate, n: usize) -> Vec<TestConnection> {
    (1..=n)
        .map(|sent| {
            let mut connection = connection(estate);
            connection.send("GET", FILE, &[], b"").expect("sends");
            let seen = || shares(estate).iter().sum::<usize>();
            let arrived = wait_until(LIMIT, || (seen() >= sent).then_some(()));
            assert!(
                arrived.is_some(),
                "request {sent} reached no member: {:?}",
                shares(estate)
            );
            connection
        })
        .collect()
}

#[track_caller]
pub(crate) fn answered(estate: &Estate, connections: Vec<TestConnection>) {
    estate.compilers.iter().for_each(StandIn::release);
    for mut connection in connections {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
}

/// An estate with one compiler that is probed every 20 ms with this check.
pub(crate) fn probed(check: &str) -> Estate {
    Estate::builder()
        .compilers(1)
        .compiler_pool(&format!("check = {{ interval = \"20ms\", {check} }}"))
        .compiler_pool(NO_WAIT)
        .start()
}

pub(crate) fn wait_for(estate: &Estate, health: &str) {
    estate.wait_for_health("compilers", &estate.compilers[0].address(), health);
}

/// Answers probes with this reply and counts them.
pub(crate) fn answer_probes(member: &StandIn, reply: Reply) -> Arc<AtomicUsize> {
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

/// A pool `odd` with these lines, which gets requests for files.
pub(crate) fn odd(lines: &str) -> EstateBuilder {
    let tables = format!(
        "[pools.odd]\n{lines}\n[[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
    );
    Estate::builder().compilers(1).with(&tables)
}

pub(crate) fn answer_once(socket: &mut TcpStream) {
    use std::io::{Read, Write};
    let mut head = [0; 4096];
    if socket.read(&mut head).is_ok_and(|n| n > 0) {
        let _ = socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    }
}

pub(crate) fn tls(ca: &Ca, credential: &TestCredential) -> StandIn {
    StandIn::builder("tls").tls(ca, credential).start()
}
