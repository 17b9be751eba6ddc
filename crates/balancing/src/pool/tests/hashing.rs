//! Keys, addresses and certnames stay with their members.

use super::super::*;
use super::support::*;
use crate::hash::key_hash;
use crate::hash::mix;
use crate::share::Holdings;

#[test]
fn a_key_stays_with_its_member_and_losing_another_does_not_move_it() {
    let pool = weights(Algorithm::LeastConnections, &[1, 1, 1, 1]);
    let keys: Vec<u64> = (0..4_000)
        .map(|n| key_hash(format!("{{md5}}{n:032x}").as_bytes()))
        .collect();
    let home = |key: u64| pool.pick(&[], keyed(Some(key)), NOW).expect("up").index();
    let before: Vec<usize> = keys.iter().map(|key| home(*key)).collect();
    for (index, share) in shares(&before) {
        assert!(
            share.abs_diff(1_000) < 150,
            "member {index} has {share} of 4000 keys"
        );
    }
    pool.entries()[2].member.connect_refused(NOW);
    let mut moved = Vec::new();
    for (key, home_before) in keys.iter().zip(&before) {
        let home_now = home(*key);
        match *home_before {
            2 => moved.push(home_now),
            kept => assert_eq!(home_now, kept),
        }
    }
    assert_eq!(
        shares(&moved).len(),
        3,
        "the lost member's keys spread over all others"
    );
    pool.entries()[2].member.answered();
    assert_eq!(
        keys.iter().map(|key| home(*key)).collect::<Vec<_>>(),
        before
    );
}

#[test]
fn the_member_of_a_key_does_not_depend_on_the_configured_order() {
    let forward = settings(Algorithm::RoundRobin, &[(1, None), (2, None), (3, None)]);
    let mut backward = forward.clone();
    backward.members.reverse();
    let address = |pool: &Pool, key| {
        pool.pick(&[], keyed(Some(key)), NOW)
            .expect("up")
            .member()
            .address()
            .to_string()
    };
    let (forward, backward) = [forward, backward]
        .map(|settings| Pool::new(&settings, CONNECTIONS_MAX, &Registry::default()))
        .into();
    for n in 0..500_u32 {
        let key = key_hash(&n.to_be_bytes());
        assert_eq!(address(&forward, key), address(&backward, key));
    }
}

#[test]
fn keys_share_by_weight() {
    let pool = weights(Algorithm::RoundRobin, &[1, 3]);
    let heavy = (0..8_000_u32)
        .filter(|n| {
            pool.pick(&[], keyed(Some(key_hash(&n.to_be_bytes()))), NOW)
                .expect("up")
                .index()
                == 1
        })
        .count();
    assert!(
        heavy.abs_diff(6_000) < 200,
        "{heavy} of 8000, 6000 are fair"
    );
}

#[test]
fn a_client_stays_with_its_member_and_losing_another_does_not_move_it() {
    let pool = weights(Algorithm::SourceHash, &[1, 1, 2]);
    let home = |n: u32| {
        let source = Some(key_hash(&n.to_be_bytes()));
        let criteria = PickCriteria { source, ..any() };
        pool.pick(&[], criteria, NOW).expect("up").index()
    };
    let before: Vec<usize> = (0..4_000).map(home).collect();
    for (index, share) in shares(&before) {
        let fair = [1_000, 1_000, 2_000][index];
        assert!(share.abs_diff(fair) < 150, "member {index} has {share}");
    }
    pool.entries()[1].member.administer(Administrative::Drain);
    let now: Vec<usize> = (0..4_000).map(home).collect();
    for (before, now) in before.iter().zip(now) {
        assert!(*before == now || *before == 1, "{before} became {now}");
    }
    pool.entries()[1].member.administer(Administrative::Ready);
    assert_eq!((0..4_000).map(home).collect::<Vec<_>>(), before);
}

#[test]
fn a_key_overrides_the_clients_address_which_only_source_hash_reads() {
    let criteria = |key, source| PickCriteria {
        key,
        source,
        ..any()
    };
    let others = ALGORITHMS
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::First);
    for algorithm in others {
        let pool = weights(algorithm, &[1, 1, 1, 1]);
        let picks = |criteria: &dyn Fn() -> PickCriteria| -> usize {
            let pick = |_| pool.pick(&[], criteria(), NOW).expect("up").index();
            shares(&(0..60).map(pick).collect::<Vec<_>>()).len()
        };
        assert_eq!(picks(&|| criteria(Some(7), Some(any().random))), 1);
        let one = algorithm == Algorithm::SourceHash;
        assert_eq!(
            picks(&|| criteria(None, Some(7))) == 1,
            one,
            "{algorithm:?}"
        );
    }
}

#[test]
fn the_hash_of_a_key_never_changes() {
    assert_eq!(key_hash(b""), KEY_HASH_OF_NOTHING);
    assert_eq!(
        key_hash(b"{md5}d41d8cd98f00b204e9800998ecf8427e"),
        KEY_HASH_OF_EMPTY_FILE
    );
}

const KEY_HASH_OF_NOTHING: u64 = 17_665_956_581_633_026_203;
const KEY_HASH_OF_EMPTY_FILE: u64 = 16_160_422_974_487_284_033;

#[test]
fn a_certname_stays_on_its_member_while_that_is_within_the_bound() {
    let pool = jrubies(Algorithm::CertnameHash, &[(2, 1), (4, 1), (6, 2)]);
    let criteria = |certname: usize| PickCriteria {
        certname: Some(key_hash(format!("web{certname}").as_bytes())),
        ..any()
    };
    let home = |certname| pool.pick(&[], criteria(certname), NOW).expect("up").index();
    let before: Vec<usize> = (0..10_000).map(home).collect();
    // Shares by JRubies times weight: 2, 4 and 12 of 18.
    for (index, fair) in [(0, 1_111), (1, 2_222), (2, 6_667)] {
        let share = before.iter().filter(|home| **home == index).count();
        assert!(share.abs_diff(fair) < 200, "{index}: {share}");
    }
    pool.entries()[0].member.connect_refused(NOW);
    for (certname, before) in before.iter().enumerate() {
        assert!(
            *before == 0 || home(certname) == *before,
            "only its own move"
        );
    }
}

/// Whatever the number of requests and their clients, no member has more than 1.25 times the mean load for its JRubies.
#[test]
fn certname_hash_keeps_every_member_within_its_bound() {
    let members = [2, 4, 8, 8];
    let pool = jrubies(
        Algorithm::CertnameHash,
        &members.map(|jrubies| (jrubies, 1)),
    );
    let total: u32 = members.iter().sum();
    let mut held = Vec::new();
    for certname in 0..u64::from(total) {
        let criteria = PickCriteria {
            // Half of the requests come from one agent.
            certname: Some(mix(certname / 2 * (certname % 2))),
            ..any()
        };
        let Ok(lease) = pool.pick(&[], criteria, NOW) else {
            break;
        };
        let (index, running) = (lease.index(), held.len() as f64 + 1.0);
        held.push(lease);
        let working = f64::from(pool.entries()[index].member.working());
        let bound = 1.25 * running * f64::from(members[index]) / f64::from(total);
        assert!(working <= bound.ceil(), "{working} of {bound}");
    }
    assert!(held.len() >= 18, "{}", held.len());
}

#[test]
fn an_added_member_gets_its_share_of_the_keys_and_no_other_key_moves() {
    for algorithm in [Algorithm::SourceHash, Algorithm::CertnameHash] {
        let criteria = |n: u64| PickCriteria {
            source: Some(mix(n)),
            certname: Some(mix(n)),
            ..any()
        };
        let homes = |members: usize| {
            let pool = weights(algorithm, &vec![1; members]);
            let home = |n| pool.pick(&[], criteria(n), NOW).expect("up").index();
            (0..10_000).map(home).collect::<Vec<_>>()
        };
        let (before, after) = (homes(9), homes(10));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!((800..=1_200).contains(&moved), "{algorithm:?}: {moved}");
        let elsewhere = before
            .iter()
            .zip(&after)
            .filter(|(a, b)| a != b && **b != 9);
        assert_eq!(elsewhere.count(), 0);
    }
}

#[test]
fn a_client_stays_with_its_member_while_that_is_available_and_not_full() {
    for algorithm in ALGORITHMS {
        let pool = pool(algorithm, &[(1, Some(1)), (1, Some(1)), (1, Some(1))]);
        let home = &pool.entries()[1].member;
        let hash = (0..).find(|hash| pool.first_choice(*hash) == Some(1));
        for stay in [
            MemberPersistence::Member(home.id()),
            MemberPersistence::Hash(hash.expect("a hash")),
        ] {
            let criteria = PickCriteria {
                persistence: stay,
                ..any()
            };
            let pick = |tried: &[u64]| pool.pick(tried, criteria, NOW);
            let held = pick(&[]).expect("free");
            assert_eq!(held.index(), 1, "{stay:?}");
            let other = pick(&[]).expect("the next request does not wait");
            assert_ne!(other.index(), 1, "{stay:?}");
            assert!(pool.keeps_clients(1, NOW), "it is full, not gone");
            drop(held);
            assert_eq!(pick(&[]).expect("free").index(), 1, "{stay:?}");
            drop(other);
            assert_ne!(pick(&[home.id()]).expect("another").index(), 1, "{stay:?}");
            for state in [Administrative::Drain, Administrative::Maintenance] {
                home.administer(state);
                let moved = pick(&[]).expect("another");
                assert_ne!(moved.index(), 1, "{stay:?} {state}");
                assert!(!pool.keeps_clients(1, NOW), "{state}");
            }
            home.administer(Administrative::Ready);
            assert_eq!(pick(&[]).expect("free").index(), 1, "{stay:?}");
        }
        assert!(eject(&pool, 1, NOW));
        assert!(!pool.keeps_clients(1, NOW), "it is ejected");
        let stay = MemberPersistence::Member(home.id());
        let moved = pool.pick(
            &[],
            PickCriteria {
                persistence: stay,
                ..any()
            },
            NOW,
        );
        assert_ne!(moved.expect("another").index(), 1);
        let stay = MemberPersistence::Member(u64::MAX);
        assert!(
            pool.pick(
                &[],
                PickCriteria {
                    persistence: stay,
                    ..any()
                },
                NOW
            )
            .is_ok()
        );
    }
}

#[test]
fn a_persistent_client_returns_to_its_member_after_a_reused_connection_broke() {
    let pool = pool(Algorithm::RoundRobin, &[(1, None), (1, None)]);
    let home = pool.entries()[1].member.id();
    let client = ClientKey::Address("127.0.0.1".parse().expect("an address"));
    let offer = |tries: usize, after_reuse| Offer {
        account: Arc::new(Holdings::default()).of(&"p".into(), client.clone()),
        eligible: EligibleMembers::Any,
        criteria: PickCriteria {
            persistence: MemberPersistence::Member(home),
            ..any()
        },
        tried: vec![home; tries],
        after_reuse,
        comes_back: false,
        unavailable_wait_max: Duration::ZERO,
    };
    for (tries, after_reuse, index) in [(1, true, 1), (1, false, 0), (2, false, 0), (2, true, 0)] {
        let lease = pool.pick_for(&offer(tries, after_reuse), NOW);
        assert_eq!(lease.expect("up").index(), index, "{tries} {after_reuse}");
    }
}
