//! The connection to the store that the active configuration names, with the keys and the certificate for it.

use std::{sync::Arc, time::Duration};

use config::Fleet;
use fleet_store::{
    Store,
    etcd::{Etcd, EtcdSettings},
};
use pki::{Fingerprint, FleetKeys};
use state::{Foundation, PreparedTls};
use upstream::{Connector, ConnectorSpec, UpstreamSettings};

use crate::shared_state::App;

/// What is needed to share records.
pub(crate) struct FleetConnection {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Arc<FleetKeys>,
    pub(crate) site_prefix: String,
    pub(crate) lease: Duration,
}

/// What a connection depends on.
pub(crate) type Dependencies = Option<(Fleet, Fingerprint, u64, Vec<u8>)>;

impl FleetConnection {
    /// `None` if this proxy is not part of a fleet.
    pub(crate) fn of(app: &App) -> Option<Self> {
        Self::configured(&app.foundation())
    }

    /// What a connection depends on. If it does not change, the connection need not be replaced.
    pub(crate) fn fingerprint(app: &App) -> Dependencies {
        let foundation = app.foundation();
        let fleet = foundation.config.fleet.clone()?;
        let tls = foundation.fleet_tls()?;
        let keys = foundation.fleet_key_file()?.to_vec();
        Some((
            fleet,
            tls.credential.fingerprint(),
            tls.trust.generation(),
            keys,
        ))
    }

    fn configured(foundation: &Foundation) -> Option<Self> {
        let fleet = foundation.config.fleet.as_ref()?;
        let tls = foundation.fleet_tls()?;
        // Both were checked when the configuration was loaded.
        let keys = String::from_utf8_lossy(foundation.fleet_key_file()?);
        let keys = FleetKeys::parse(&keys).ok()?;
        Some(Self {
            store: Arc::new(etcd(fleet, tls, fleet.site_prefix())?),
            keys: Arc::new(keys),
            site_prefix: fleet.site_prefix(),
            lease: fleet.lease,
        })
    }
}

/// The etcd cluster of `[fleet]`, with this prefix of its keys. `None` if rustls refuses the certificate of the proxy.
pub(crate) fn etcd(fleet: &Fleet, tls: &PreparedTls, prefix: String) -> Option<Etcd> {
    let config = pki::grpc_client_config(&tls.trust, &tls.credential).ok()?;
    let settings = UpstreamSettings {
        connect_timeout: fleet.connect_timeout,
        ..UpstreamSettings::default()
    };
    let connectors = fleet.etcd.iter().filter_map(|endpoint| {
        let spec = ConnectorSpec {
            address: endpoint.address(),
            addresses: &[],
            server_name: None,
            tls: Some(Arc::clone(&config)),
            check: None,
            settings,
            slots: Arc::default(),
        };
        Connector::new(spec).ok().map(Arc::new)
    });
    Some(Etcd::new(
        EtcdSettings {
            prefix,
            request_timeout: fleet.request_timeout,
            keepalive: fleet.keepalive,
        },
        connectors.collect(),
    ))
}
