//! Tests of shares with tables and with threads.

use super::*;

fn agent(name: &str) -> ClientKey {
    ClientKey::new(Some(&name.into()), [192, 0, 2, 1].into())
}

fn holding(holdings: &Arc<Holdings>, name: &str) -> Arc<Holding> {
    holdings.of(&"compilers".into(), agent(name))
}

#[test]
fn a_share_is_rounded_down_and_at_least_one() {
    for (percent, connections, expected) in [
        (25, 128, 32),
        (25, 512, 128),
        (25, 7, 1),
        (25, 3, 1),
        (25, 0, 1),
        (1, 128, 1),
        (100, 128, 128),
        (400, 128, 128),
        (100, u32::MAX, u32::MAX),
    ] {
        assert_eq!(
            ClientShare { percent }.of(connections),
            expected,
            "{percent} % of {connections}"
        );
    }
    assert_eq!(ClientShare::default().of(128), 32);
}

#[test]
fn agents_behind_one_address_are_counted_separately_and_addresses_of_one_network_together() {
    let address = |text: &str| ClientKey::new(None, text.parse().expect("an address"));
    assert_ne!(agent("web01"), agent("web02"));
    assert_ne!(agent("web01"), address("192.0.2.1"));
    assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    assert_eq!(address("2001:db8::1"), address("2001:db8::ffff"));
    assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
}

#[test]
fn a_client_holds_its_share_and_no_more_and_others_have_theirs() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    assert!(web01.raise(1, 2) && web01.raise(1, 2));
    assert!(!holding(&holdings, "web01").raise(1, 2));
    assert!(holding(&holdings, "web02").raise(1, 2));
    assert!(holdings.of(&"ca".into(), agent("web01")).raise(1, 2));
    web01.lower(2);
    assert_eq!(web01.held(), 0);
}

#[test]
fn entries_go_with_the_last_holder_of_their_client() {
    let holdings = Arc::default();
    let connections = [holding(&holdings, "web01"), holding(&holdings, "web01")];
    assert_eq!(holdings.len(), 1);
    let running = Arc::clone(&connections[0]);
    drop(connections);
    assert_eq!(holdings.len(), 1, "a request still runs");
    drop(running);
    assert!(holdings.is_empty());
}

#[test]
fn threads_never_hold_more_than_the_share_together() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if web01.raise(1, 3) {
                        most.fetch_max(web01.held(), Ordering::SeqCst);
                        web01.lower(1);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(web01.held(), 0);
}
