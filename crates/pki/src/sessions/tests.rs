//! Keys and tickets at given times: lifetimes, rotation, and tickets that are not accepted.

use super::*;

const LIFETIME: Duration = Duration::from_secs(10);

fn connection(keys: &Arc<RotatedKeys>) -> ConnectionTickets {
    ConnectionTickets::new(Arc::clone(keys), LIFETIME)
}

fn keys() -> Arc<RotatedKeys> {
    Arc::new(RotatedKeys::new().expect("randomness"))
}

#[test]
fn a_ticket_lives_for_its_lifetime_and_no_longer() {
    let keys = keys();
    for made in [0, 9_999, 10_000, 25_000] {
        let ticket = connection(&keys).seal(b"session", made).expect("sealed");
        let at = |now| connection(&keys).open(&ticket, now);
        assert_eq!(at(made).as_deref(), Some(&b"session"[..]));
        assert_eq!(
            at(made + 9_999).as_deref(),
            Some(&b"session"[..]),
            "{made}: a rotation is not its end"
        );
        assert_eq!(at(made + 10_000), None, "{made}");
    }
}

#[test]
fn resumption_never_extends_a_session() {
    let keys = keys();
    let mut ticket = connection(&keys).seal(b"first", 500).expect("sealed");
    for now in [1_000, 4_000, 8_000, 10_400] {
        let resumed = connection(&keys);
        assert!(resumed.open(&ticket, now).is_some(), "{now}");
        ticket = resumed.seal(b"next", now).expect("sealed");
        assert_eq!(
            u64::from(resumed.left(now)),
            (10_500 - now) / 1000,
            "the rest of the lifetime is the hint"
        );
    }
    assert_eq!(connection(&keys).open(&ticket, 10_500), None);
}

#[test]
fn of_several_tickets_of_one_client_the_oldest_counts() {
    let keys = keys();
    let old = connection(&keys).seal(b"old", 0).expect("sealed");
    let new = connection(&keys).seal(b"new", 9_000).expect("sealed");
    for order in [[&old, &new], [&new, &old]] {
        let both = connection(&keys);
        assert!(
            order
                .iter()
                .all(|ticket| both.open(ticket, 9_500).is_some())
        );
        let next = both.seal(b"next", 9_500).expect("sealed");
        assert_eq!(connection(&keys).open(&next, 10_000), None);
    }
}

#[test]
fn a_key_opens_no_ticket_two_lifetimes_after_it_was_made() {
    let keys = keys();
    let held = |now| keys.keys_at(LIFETIME, now).expect("randomness");
    assert!(held(9_999).previous.is_none());
    let rotated = held(10_000);
    assert_eq!(rotated.current.since, 10_000);
    assert_eq!(rotated.previous.map(|key| key.since), Some(0));
    assert_eq!(held(20_000).previous.map(|key| key.since), Some(10_000));
    // No client has connected for a long time.
    assert!(held(90_000).previous.is_none());
}

#[test]
fn a_shorter_lifetime_applies_to_existing_tickets() {
    let keys = keys();
    let ticket = connection(&keys).seal(b"session", 0).expect("sealed");
    let shorter = ConnectionTickets {
        lifetime: Duration::from_secs(2),
        ..connection(&keys)
    };
    assert!(shorter.open(&ticket, 1_999).is_some());
    assert_eq!(shorter.open(&ticket, 2_000), None);
}

#[test]
fn a_ticket_of_tls_1_2_is_replaced_when_its_key_is_and_one_of_tls_1_3_each_time() {
    let keys = keys();
    let ticket = connection(&keys).seal(b"session", 5_000).expect("sealed");
    let renews = |asks_first: bool, now| {
        let resumed = connection(&keys);
        assert!(!asks_first || resumed.enabled());
        assert!(resumed.open(&ticket, now).is_some());
        resumed.enabled()
    };
    assert!(!renews(false, 9_999), "its key is the current one");
    assert!(renews(true, 9_999));
    assert!(renews(false, 10_000), "its key is the one before");
    let unknown = connection(&keys);
    assert!(unknown.open(b"no ticket", 0).is_none() && unknown.enabled());
}

#[test]
fn foreign_tickets_are_not_accepted() {
    let (keys, others) = (keys(), keys());
    let ticket = connection(&others).seal(b"session", 0).expect("sealed");
    assert_eq!(connection(&keys).open(&ticket, 0), None);
    let own = connection(&keys).seal(b"session", 0).expect("sealed");
    for end in 0..own.len() {
        assert_eq!(connection(&keys).open(&own[..end], 0), None, "cut at {end}");
    }
    // This ticket is encrypted with the key, but too short to contain a time.
    let short = keys.keys_at(LIFETIME, 0).expect("randomness");
    let short = short.current.ticketer.encrypt(b"short").expect("sealed");
    assert_eq!(connection(&keys).open(&short, 0), None);
}

#[test]
fn the_session_store_drops_the_oldest_and_refuses_large_sessions() {
    let store = TimedStore {
        store: Arc::default(),
        lifetime: LIFETIME,
    };
    let id = |n: usize| n.to_be_bytes().to_vec();
    for n in 0..SESSIONS_MAX + 3 {
        assert!(store.put(id(n), b"session".to_vec()));
    }
    assert_eq!(lock(&store.store.stored).by_id.len(), SESSIONS_MAX);
    assert_eq!(store.get(&id(2)), None);
    assert_eq!(store.get(&id(3)).as_deref(), Some(&b"session"[..]));
    assert!(!store.put(id(0), vec![0; SESSION_BYTES_MAX + 1]));
    assert_eq!(store.get(&id(0)), None);
}

#[test]
fn sessions_without_tickets_expire_with_their_lifetime() {
    let mut stored = Stored::default();
    let made = Instant::now();
    let value = b"session".to_vec();
    stored.put(b"id".to_vec(), Session { made, value });
    let just = made + LIFETIME - Duration::from_millis(1);
    assert!(stored.get(b"id", LIFETIME, just).is_some());
    assert!(stored.get(b"id", LIFETIME, made + LIFETIME).is_none());
    assert!(stored.by_id.is_empty(), "and is forgotten");
}
