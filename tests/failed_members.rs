//! Requests that wait at a member when it fails: a safe one moves to another member, and the others stay.

use testkit::{Reply, ReplyGate, StandIn, TestConnection};

use crate::support::{
    self, Estate, LIMIT, QUICK_CHECK,
    paths::{CATALOG, FILE},
};

fn estate(compilers: usize) -> Estate {
    let estate = Estate::builder().compilers(compilers);
    estate.compiler_pool(QUICK_CHECK).start()
}

/// Sets the administrative state of a compiler.
#[track_caller]
fn set(estate: &Estate, verb: &str, compiler: usize) {
    let address = estate.compilers[compiler].address();
    support::set_state(&estate.proxy, verb, "compilers", &address);
}

/// Sets the administrative state of a compiler, and waits until it is up.
#[track_caller]
fn set_ready(estate: &Estate, compiler: usize) {
    set(estate, "ready", compiler);
    let address = estate.compilers[compiler].address();
    estate.wait_for_health("compilers", &address, "up");
}

fn fail_probes(compiler: &StandIn) {
    compiler.answer(|request| request.is_probe().then(|| Reply::status(503)));
}

/// Sends a request and waits until this compiler receives it. The compiler has received `before` requests so far.
#[track_caller]
fn waiting_at(compiler: &StandIn, estate: &Estate, request: (&str, &str, usize)) -> TestConnection {
    let (method, target, before) = request;
    let mut connection = estate.agent("web01").connect().expect("connects");
    connection.send(method, target, &[], b"").expect("sends");
    compiler.wait_for_request(before + 1, LIMIT);
    connection
}

#[track_caller]
fn assert_answered(connection: &mut TestConnection) {
    let answer = connection.read_response().expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_waiting_get_moves_when_its_member_fails_and_a_catalog_does_not() {
    type Failure = fn(&Estate);
    let failures: [(&str, Failure); 3] = [
        ("down", |estate| fail_probes(&estate.compilers[0])),
        ("maintenance", |estate| set(estate, "maintenance", 0)),
        ("drain and down", |estate| {
            set(estate, "drain", 0);
            fail_probes(&estate.compilers[0]);
        }),
    ];
    for (name, fail) in failures {
        let estate = estate(2);
        let [hung, other] = &estate.compilers[..] else {
            unreachable!("two compilers")
        };
        hung.hold();
        set(&estate, "drain", 1);
        // When the file request moves, the catalog request has waited for longer.
        let mut catalog = waiting_at(hung, &estate, ("POST", CATALOG, 0));
        let mut file = waiting_at(hung, &estate, ("GET", FILE, 1));
        set_ready(&estate, 1);
        fail(&estate);
        assert_answered(&mut file);
        let seen = other.requests();
        assert_eq!((seen.len(), seen[0].target.as_str()), (1, FILE), "{name}");
        let record = estate.wait_for_record(|record| record["status"] == 200);
        assert_eq!(record["attempts"], 2, "{name}");
        assert_eq!(record["member"], other.address(), "{name}");
        let moved = [("pool", "compilers"), ("result", "moved")];
        estate.wait_for_metric("proscenium_attempts_total", &moved, 1.0);
        estate.wait_for_event("request moved");
        hung.release();
        assert_answered(&mut catalog);
        assert_eq!(other.requests().len(), 1, "{name}");
    }
}

#[test]
fn a_request_moves_once() {
    let estate = estate(3);
    let [first, second, third] = &estate.compilers[..] else {
        unreachable!("three compilers")
    };
    first.hold();
    second.hold();
    set(&estate, "drain", 1);
    set(&estate, "drain", 2);
    let mut moved = waiting_at(first, &estate, ("GET", FILE, 0));
    set_ready(&estate, 1);
    set(&estate, "maintenance", 0);
    second.wait_for_request(1, LIMIT);
    let mut other = waiting_at(second, &estate, ("GET", FILE, 1));
    set_ready(&estate, 2);
    set(&estate, "maintenance", 1);
    // Both requests wait at the second member. The one that has not moved yet moves. By then, the proxy has considered
    // the other one too.
    assert_answered(&mut other);
    assert_eq!(third.requests().len(), 1);
    second.release();
    assert_answered(&mut moved);
    assert_eq!(third.requests().len(), 1);
}

#[test]
fn a_request_stays_once_a_byte_of_its_response_has_arrived() {
    let estate = estate(2);
    let [hung, other] = &estate.compilers[..] else {
        unreachable!("two compilers")
    };
    let gate = ReplyGate::new();
    let (begun, silent) = ("/puppet/v3/environments", FILE);
    let reply = Reply::ok("late").interim(103, &[]).gate(&gate);
    hung.answer(move |request| (request.path() == begun).then(|| reply.clone()));
    set(&estate, "drain", 1);
    let mut stays = waiting_at(hung, &estate, ("GET", begun, 0));
    hung.hold();
    let mut moves = waiting_at(hung, &estate, ("GET", silent, 1));
    set_ready(&estate, 1);
    set(&estate, "maintenance", 0);
    assert_answered(&mut moves);
    hung.release();
    gate.release();
    assert_answered(&mut stays);
    let seen = other.requests();
    let targets: Vec<_> = seen.iter().map(|seen| seen.target.as_str()).collect();
    assert_eq!(targets, [silent]);
}
