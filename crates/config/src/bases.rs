//! The default of every field that a file may leave out, from each crate's own defaults.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::{
    binding::Base,
    config::{
        AccessLog, AccessLogOutput, ChangeDetection, Config, CredentialFiles, EventOutput, Fetch,
        Fleet, MaterialWatching, MemberTls, OwnRenewal, PoolConfig, Trust,
    },
    environment::Environment,
};

/// A configuration that has only defaults. Listeners, pools and materials are missing.
impl Base for Config {
    fn base() -> Self {
        Self {
            ssldir: None,
            certname: None,
            // The default is the number of cores, which the machine provides.
            workers: 0,
            drain_grace: Duration::from_secs(60),
            listeners: Vec::new(),
            certificates: Vec::new(),
            listener_certificates: BTreeMap::new(),
            own_renewal: OwnRenewal {
                enabled: false,
                before: Duration::from_secs(45 * 86_400),
            },
            session_lifetime: Duration::from_secs(6 * 3600),
            trust: Trust {
                settings: pki::settings::TrustSettings::default(),
                ca: Vec::new(),
                crl: Vec::new(),
                crl_is_agents_copy: false,
                revoked_close_rate: 1000,
                fetch: None,
            },
            materials: MaterialWatching {
                watch: ChangeDetection::Notify,
                interval: Duration::from_secs(10),
                settle: Duration::from_secs(1),
                settle_max: Duration::from_secs(30),
            },
            identity: identity::settings::IdentitySettings::default(),
            form: identity::HeaderForm::default(),
            upstream: upstream::settings::UpstreamSettings::default(),
            dns: discovery::settings::DnsSettings::default(),
            agent_max_except: Vec::new(),
            pools: Vec::new(),
            routes: routing::settings::RoutingSettings::default(),
            csr: pki::CsrSettings::default(),
            ca: proxy::CaSettings::default(),
            exchange: proxy::settings::ProxySettings::default(),
            access_log: AccessLog::base(),
            other_access_logs: Vec::new(),
            events: EventOutput::Stderr,
            admin: admin::settings::AdminSettings::default(),
            metrics: admin::settings::MetricsSettings::default(),
            state_directory: Environment::STATE_DIRECTORY.into(),
            fleet: None,
        }
    }
}

impl Base for Fleet {
    fn base() -> Self {
        let none = CredentialFiles {
            chain: PathBuf::new(),
            key: PathBuf::new(),
        };
        Self {
            etcd: Vec::new(),
            site: String::new(),
            key_file: PathBuf::new(),
            tls: MemberTls {
                credential: none,
                ca: Vec::new(),
                crl: Vec::new(),
                name_from_cn: false,
            },
            prefix: "/proscenium".to_owned(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_millis(1500),
            keepalive: Duration::from_secs(5),
            lease: Duration::from_secs(15),
            ready_after: Duration::from_secs(5),
        }
    }
}

impl Base for AccessLog {
    fn base() -> Self {
        Self {
            output: AccessLogOutput::Stdout,
            settings: telemetry::settings::AccessLogSettings::default(),
        }
    }
}

impl Base for Fetch {
    fn base() -> Self {
        Self {
            interval: Duration::from_secs(60),
            jitter: Duration::from_secs(6),
            timeout: Duration::from_secs(30),
            full_interval: Duration::from_secs(3600),
            body_bytes_max: 64 << 20,
        }
    }
}

impl Base for listener::ListenerSettings {
    fn base() -> Self {
        Self::new("", ([0, 0, 0, 0], 0).into())
    }
}

impl Base for listener::SniPassthrough {
    fn base() -> Self {
        Self {
            server_names: Vec::new(),
            pool: String::new(),
        }
    }
}

impl Base for PoolConfig {
    fn base() -> Self {
        Self::new("", &Config::base())
    }
}

impl PoolConfig {
    /// A pool that overrides no setting.
    pub(crate) fn new(name: &str, above: &Config) -> Self {
        Self {
            pool: balancing::settings::PoolSettings::new(name),
            upstream: above.upstream,
            rules: proxy::settings::PoolRules {
                form: above.form.clone(),
                ..proxy::settings::PoolRules::default()
            },
            agent_max_except: above.agent_max_except.clone(),
            tls: None,
            server_names: Vec::new(),
        }
    }
}

impl Base for MemberTls {
    fn base() -> Self {
        Self {
            credential: CredentialFiles {
                chain: PathBuf::new(),
                key: PathBuf::new(),
            },
            ca: Vec::new(),
            crl: Vec::new(),
            name_from_cn: false,
        }
    }
}

impl Base for balancing::settings::MemberSettings {
    fn base() -> Self {
        Self::new("")
    }
}

impl Base for balancing::settings::AgentCheckSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for balancing::settings::EjectionSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for balancing::settings::CheckSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for identity::HeaderForm {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for routing::settings::RouteSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for routing::settings::AccessRuleSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for pki::settings::IssuerSettings {
    fn base() -> Self {
        Self::default()
    }
}

impl Base for pki::CsrAllow {
    fn base() -> Self {
        Self::default()
    }
}
