//! A status as the server fills it, for tests.

use std::{collections::BTreeMap, time::SystemTime};

use crate::*;

pub(crate) fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        phase: ProcessPhase::Serving,
        generation: GenerationStatus {
            number: 7,
            loaded_at: SystemTime::UNIX_EPOCH.into(),
            fingerprint: "c0ffee".to_owned(),
        },
        last_reload: Some(LastReload {
            at: SystemTime::UNIX_EPOCH.into(),
            outcome: ReloadOutcome {
                result: ReloadResult::Refused,
                generation: 7,
                report: "1 error".to_owned(),
            },
        }),
        hand_over: None,
        former_processes: Vec::new(),
        handshake_priority: None,
        listeners: vec![ListenerStatus {
            name: "agents".to_owned(),
            address: "0.0.0.0:8140".to_owned(),
            addresses: vec!["0.0.0.0:8140".to_owned()],
            connections: 1,
            connections_max: 20_000,
            handshakes: 0,
            handshakes_max: 512,
            certificate_rejected: None,
        }],
        metrics_address: None,
        pools: vec![PoolStatus {
            name: "compilers".to_owned(),
            algorithm: "least-connections".to_owned(),
            available: 1,
            waiting: 0,
            longest_wait_seconds: None,
            longest_wait_milliseconds: None,
            queue_refusals: BTreeMap::new(),
            members: vec![member()],
        }],
        trust: active_trust(),
        dns: vec![NameStatus {
            name: "srv:_x-puppet._tcp.example.com".to_owned(),
            pools: vec!["compilers".to_owned()],
            servers: vec!["192.0.2.53:53".to_owned()],
            answered_at: Some(Timestamp::from_unix_seconds(0)),
            ttl_seconds: Some(300),
            next_lookup: Some(Timestamp::from_unix_seconds(300)),
            failure: None,
            is_stored: false,
        }],
        materials: MaterialsStatus {
            watch: MaterialsWatch::Notify,
            refused: Some(RefusedMaterials {
                since: Timestamp::from_unix_seconds(0),
                report: "crl.pem: not a CRL".to_owned(),
            }),
        },
        state: StateStatus {
            directory: "/var/lib/proscenium".to_owned(),
            unusable: None,
        },
        renewal: RenewalStatus {
            configured: true,
            off: Some(RenewalDisabled {
                since: Timestamp::from_unix_seconds(0),
                why: "the CA renewed another certificate".to_owned(),
            }),
        },
        alarms: Vec::new(),
        limits: [("discard_bytes_max".to_owned(), 4 << 20)].into(),
        build: BuildStatus::default(),
        process: ProcessStatus::default(),
        certificates: Vec::new(),
        agents: AgentCounts::default(),
        blocks: 0,
        body_buffer_bytes: 0,
        rates: RecentRates::default(),
        edge_copies: BTreeMap::new(),
        fleet: None,
    }
}

fn active_trust() -> ActiveTrust {
    ActiveTrust {
        generation: 2,
        cas: vec![ActiveCa {
            subject: "CN=Puppet CA".to_owned(),
            not_after: Timestamp::from_unix_seconds(0),
            is_superseded: false,
            source: "ca.pem".to_owned(),
        }],
        crls: vec![ActiveCrl {
            issuer: "CN=Puppet CA".to_owned(),
            number: "12".to_owned(),
            entries: 3,
            this_update: Some(Timestamp::from_unix_seconds(0)),
            next_update: Some(Timestamp::from_unix_seconds(0)),
            expired: true,
            accepted_until: None,
            source: "crl.pem".to_owned(),
            agent_copy_age_seconds: None,
            is_newest: true,
        }],
        crl_missing: vec!["CN=Other".to_owned()],
        unchecked: Vec::new(),
        alarms: vec!["the CRL of CN=Puppet CA has expired".to_owned()],
        fetch: None,
        agent_copy_age_seconds: None,
        chain_cache: ChainCacheStatus::default(),
    }
}

pub(crate) fn member() -> MemberStatus {
    MemberStatus {
        address: "c1:8140".to_owned(),
        health: MemberHealth::Up,
        since: Some(SystemTime::UNIX_EPOCH.into()),
        why: Some("probes-succeeded".to_owned()),
        last_probe: Some(ProbeStatus {
            at: SystemTime::UNIX_EPOCH.into(),
            failure: None,
        }),
        recent_probes: Vec::new(),
        jrubies: None,
        agent_check: None,
        warming: None,
        overloaded: None,
        ejected_seconds: None,
        ejections: 0,
        clock_offset_seconds: Some(-2),
        administrative_state: AdministrativeState::Ready,
        administrative: None,
        tunnels: 0,
        oldest_tunnels: Vec::new(),
        oldest_requests: Vec::new(),
        in_flight: 3,
        in_flight_by_work: [("catalog".to_owned(), 3)].into(),
        connections: 4,
        traffic: None,
        weight: 1,
        priority: 0,
        backup: false,
    }
}

pub(crate) fn shrunk_crl() -> ShrunkCrlStatus {
    ShrunkCrlStatus {
        issuer: "CN=Puppet CA".to_owned(),
        number: "11".to_owned(),
        entries: 2,
        active_number: "12".to_owned(),
        is_older: true,
        missing: 1,
        accepted_again: 1,
        since: Timestamp::from_unix_seconds(0),
    }
}
