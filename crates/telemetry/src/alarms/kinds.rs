//! Every kind of alarm: its word, its severity, what agents notice, the first step of an operator, and the page to read.

/// How urgent an alarm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Something needs an operator, but no agent is known to fail now.
    Warning,
    /// Agents fail now, or will within days or at the next restart.
    Critical,
}

impl Urgency {
    /// Every urgency, the least first.
    pub const ALL: [Self; 2] = [Self::Warning, Self::Critical];

    /// The word in the status, in metrics and in alert rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What is declared about a kind of alarm.
#[derive(Debug)]
struct AlarmDeclaration {
    word: &'static str,
    meaning: &'static str,
    urgency: Urgency,
    effect: &'static str,
    first_step: &'static str,
    runbook: &'static str,
}

/// Declares the kinds of alarms. The first sentence of each is its meaning on the generated page.
macro_rules! alarm_kinds {
    ($(
        $(#[doc = $meaning:literal])+
        $kind:ident = $word:literal, $urgency:ident {
            effect: $effect:literal,
            first_step: $first_step:literal,
            runbook: $runbook:literal,
        }
    )+) => {
        /// What an alarm is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Alarm {
            $($(#[doc = $meaning])+ $kind,)+
        }

        impl Alarm {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            const fn declaration(self) -> &'static AlarmDeclaration {
                match self {
                    $(Self::$kind => &AlarmDeclaration {
                        word: $word,
                        meaning: concat!($($meaning),+),
                        urgency: Urgency::$urgency,
                        effect: $effect,
                        first_step: $first_step,
                        runbook: $runbook,
                    },)+
                }
            }
        }
    };
}

alarm_kinds! {
    /// No member of a pool is available.
    PoolUnavailable = "pool-unavailable", Critical {
        effect: "Requests to this pool wait and then get 503, so that runs fail; if it is the pool `ca`, agents cannot enrol or renew. A passthrough pool closes connections.",
        first_step: "Run `proscenium status`, which shows why each member is not available; on the host of a member that is down, run `systemctl status puppetserver`.",
        runbook: "operating/health.md#when-no-member-is-available",
    }
    /// The queue of a pool is full and refuses requests whose refusal makes an agent's run fail.
    QueueFull = "queue-full", Critical {
        effect: "Requests to this pool get 503, and agents fail their runs.",
        first_step: "Run `proscenium status`: return members that are down or drained, or add members if all are busy.",
        runbook: "balancing.md#runbook-a-herd",
    }
    /// A CA or a CRL has expired, is dated in the future, or does not fit the others, and no agent is refused because of it.
    Trust = "trust", Warning {
        effect: "None yet; agents are refused if the CA or the CRL can no longer be used.",
        first_step: "Check the clock of this host with `timedatectl`; if it is right, run `proscenium crl show` and replace what the message names.",
        runbook: "operating/revocation.md#outdated-and-invalid-crls",
    }
    /// Every certificate of a CA is refused, because of its dates or those of its CRL, or because it has no CRL.
    AgentsRefused = "agents-refused", Critical {
        effect: "Every agent with a certificate of this CA gets 403 and no catalog.",
        first_step: "Check the clock of this host with `timedatectl`; if it is right, provide the CRL or the CA certificate that the message names.",
        runbook: "operating/troubleshooting.md#refused-certificates",
    }
    /// No CRL can be fetched from the CA.
    CrlFetch = "crl-fetch", Warning {
        effect: "None for valid agents; the proxy still accepts certificates that the CA has revoked since the last fetch.",
        first_step: "Run `proscenium crl fetch`, which prints the error of each CA server.",
        runbook: "operating/revocation.md#fetch-the-crl-from-the-ca",
    }
    /// A CRL drops revocations, which stay active.
    CrlShrunk = "crl-shrunk", Warning {
        effect: "None; certificates that the new CRL does not list stay revoked.",
        first_step: "Find out why the CA's CRL lacks revocations, such as a restored backup, before you accept it with `proscenium crl accept`.",
        runbook: "operating/revocation.md#a-crl-drops-revocations",
    }
    /// A CRL or a decision about one, fetched or stored, cannot be used.
    CrlUnusable = "crl-unusable", Warning {
        effect: "None for valid agents; revocations that only this file or CRL has may not apply.",
        first_step: "Run `proscenium crl show`, and restore or replace the file or the CRL that the message names.",
        runbook: "operating/revocation.md#damaged-files",
    }
    /// No current copy of the CA's certificates can be fetched.
    CaCopy = "ca-copy", Warning {
        effect: "None while the CA server runs; while it is down, new agents cannot fetch the CA certificate.",
        first_step: "Run `proscenium status` to see whether the pool `ca` is available; if it is, follow the message.",
        runbook: "operating/ca.md#responses-while-the-ca-is-down",
    }
    /// Changed materials on disk are not active.
    MaterialsRefused = "materials-refused", Warning {
        effect: "None yet; the previous files stay active, but a restart reads those on disk.",
        first_step: "Run `proscenium check`, and correct or restore the file that it names.",
        runbook: "operating/running.md#files-that-change",
    }
    /// A reload was refused, so the files on disk are not the active configuration.
    ReloadRefused = "reload-refused", Warning {
        effect: "None yet; the previous configuration stays active until the proxy restarts.",
        first_step: "Run `proscenium check`, correct what it names, and run `proscenium reload`.",
        runbook: "operating/running.md#a-refused-reload",
    }
    /// Settings or a program on disk take effect only after a restart.
    RestartPending = "restart-pending", Warning {
        effect: "None until the next restart, which applies what is on disk; after `proscenium rollback`, a reload applies it too.",
        first_step: "Follow the message: after a rollback, correct the file now; otherwise run its command at a quiet time.",
        runbook: "operating/running.md#a-pending-restart",
    }
    /// The kernel does not report changes of materials.
    MaterialsWatch = "materials-watch", Warning {
        effect: "None; changed certificates and CRLs apply later, after `[materials] interval`.",
        first_step: "If the message names inotify, raise fs.inotify.max_user_watches and fs.inotify.max_user_instances with `sysctl -w` and in /etc/sysctl.d.",
        runbook: "operating/running.md#how-the-proxy-detects-changes",
    }
    /// Renewals are off: the CA renewed a certificate other than the agent's, or is not known to be a Puppet Server.
    RenewalOff = "renewal-off", Warning {
        effect: "Agents get no renewals, and are refused when their certificates expire.",
        first_step: "Correct the CA server or the setting that the message names, then run `proscenium reload`.",
        runbook: "operating/ca.md#renewal-of-agents-certificates",
    }
    /// Verified agents request renewals of their certificates and get none, or the CA refuses the requests.
    RenewalsRefused = "renewals-refused", Warning {
        effect: "Agents get no renewals, and are refused when their certificates expire.",
        first_step: "Add the certname of the proxy's certificate to `infra_inventory.txt` on the CA server, and set `renewal = true` in `[ca]` if it is off.",
        runbook: "operating/ca.md#renewal-of-agents-certificates",
    }
    /// Certificates of agents that were seen in the last day expire soon.
    AgentsExpiring = "agents-expiring", Warning {
        effect: "None yet; these agents are refused when their certificates expire.",
        first_step: "Run `proscenium certificates`, which lists them, and let these agents renew their certificates or enrol again.",
        runbook: "operating/ca.md#renewal-of-agents-certificates",
    }
    /// A CA of the bundle expires soon, and with it every certificate that it issued.
    CaExpiring = "ca-expiring", Warning {
        effect: "None yet; when the CA expires, agents, members and proxies refuse every certificate that it issued.",
        first_step: "Check the clock of this host with `timedatectl`; if it is right, renew the CA with the same key and distribute it to every host.",
        runbook: "guides/ca-expiry.md#renew-it-with-the-same-key",
    }
    /// One of the proxy's own certificates expires soon.
    CertificateExpiring = "certificate-expiring", Warning {
        effect: "None yet; when the certificate expires, agents or members refuse the proxy.",
        first_step: "Check the clock of this host with `timedatectl`; if it is right, renew the certificate as the message describes.",
        runbook: "operating/proxy-certificates.md#expiry-and-renewal",
    }
    /// One of the proxy's own certificates has expired, is not valid yet, or is revoked.
    CertificateInvalid = "certificate-invalid", Critical {
        effect: "Agents or members refuse the proxy, so that runs fail.",
        first_step: "Check the clock of this host with `timedatectl`; if it is right, replace the certificate as the message describes.",
        runbook: "operating/proxy-certificates.md#expiry-and-renewal",
    }
    /// Changes do not survive a restart.
    StateDirectory = "state-directory", Warning {
        effect: "None; changes apply now, but a restart loses those that could not be written.",
        first_step: "Check the space and the owner of the state directory with `df -h`, `df -i` and `ls -l`, and correct what the message names.",
        runbook: "operating/running.md#a-state-directory-that-cannot-be-written",
    }
    /// The administrative states that members had before the start cannot be read.
    MemberStates = "member-states", Warning {
        effect: "Members that were drained or in maintenance before the start get requests again.",
        first_step: "Drain those members again with `proscenium drain`.",
        runbook: "operating/draining.md#stored-states",
    }
    /// The proxy's clock is wrong, according to the clocks of most members or to the dates of certificates and CRLs.
    ClockOffset = "clock-offset", Warning {
        effect: "Valid certificates can be refused as expired or not valid yet, and expired ones accepted.",
        first_step: "Run `timedatectl` and `chronyc tracking` on this host. If its clock is wrong, correct it before you renew a certificate; if it is right, check the clocks of the members, and act on the other alarms of `proscenium status`.",
        runbook: "operating/monitoring.md#clocks",
    }
    /// A member reports an impossible number of JRubies.
    JrubyCount = "jruby-count", Warning {
        effect: "None; the proxy balances this member without its number of JRubies.",
        first_step: "Check whether the member is a Puppet Server: run `proscenium doctor`.",
        runbook: "operating/health.md#jruby-counts",
    }
    /// The catalogs of a member take much longer than those of the other members of its pool.
    SlowMember = "slow-member", Warning {
        effect: "Runs of the agents whose catalogs this member compiles take longer.",
        first_step: "Compare the members with `proscenium status --members`, and look at the load, the memory and the log of Puppet Server on the host of this one.",
        runbook: "operating/health.md#slow-compilers",
    }
    /// A DNS name in a pool's members has no valid answer, or DNS names another CA server first than the one that has the writes.
    DnsAnswer = "dns-answer", Warning {
        effect: "None while the last valid answer is right; a pool that never had an answer has no members of this name.",
        first_step: "Run `proscenium status`, which shows each name with its DNS servers and last answer, and query the name with `dig` on this host.",
        runbook: "operating/dns.md#failed-and-invalid-answers",
    }
    /// Certificates with the same certname, from CAs that do not sign each other, are used in turn.
    CertnameOfTwoCas = "certname-of-two-cas", Warning {
        effect: "Two hosts may have one name, and each may get the catalogs and the secrets of the other.",
        first_step: "Run `proscenium who NAME` with the certname in the message, block the wrong certificate with `proscenium block --serial N --issuer CA`, and run `proscenium reload`, which clears the alarm.",
        runbook: "operating/access.md#several-cas-in-one-bundle",
    }
    /// A member of a passthrough pool has the same address as a member of another pool that gets identity headers.
    PassthroughMember = "passthrough-member", Warning {
        effect: "No connection is passed through to this member; the other members of its pool get them.",
        first_step: "Remove the address from DNS, or the member from the pool that passes connections through.",
        runbook: "layer4.md#members-with-trusted-headers",
    }
    /// File descriptors, socket memory or local ports are used up, or so many clients are connected that others wait.
    Descriptors = "descriptors", Critical {
        effect: "Connections of agents wait or fail, and so may connections to members.",
        first_step: "Raise the limit that the message names; if it is `LimitNOFILE=`, run `systemctl edit proscenium` and restart the proxy.",
        runbook: "operating/descriptors.md#the-alarm-descriptors",
    }
    /// Access records cannot be written, or an access log cannot be reopened.
    AccessLog = "access-log", Warning {
        effect: "None; requests are served, but their records are lost or go to a file that was rotated away.",
        first_step: "Check the space and the owner of the log's directory with `df -h` and `ls -l`, and run `proscenium reopen-logs` if the message says so.",
        runbook: "operating/logs.md#a-log-that-cannot-be-written",
    }
    /// An operator's change cannot be written to the audit log.
    AuditLog = "audit-log", Warning {
        effect: "None; changes of operators apply, but only the events record them.",
        first_step: "Check the space and the owner of the file that the message names with `df -h` and `ls -l`.",
        runbook: "operating/admin-api.md#the-audit-log",
    }
    /// A task of the proxy has ended because of a defect, and the proxy starts it again.
    TaskEnded = "task-ended", Warning {
        effect: "None at first; what the task does stops until it runs again, such as the fetch of CRLs or the expiry of blocks.",
        first_step: "If the alarm stays for minutes, run `systemctl restart proscenium`, and report the events as a defect.",
        runbook: "operating/running.md#a-task-that-has-ended",
    }
    /// The fleet's store has been unreachable for a minute.
    FleetUnreachable = "fleet-unreachable", Warning {
        effect: "None; blocks and drains apply only on the proxy where they are made.",
        first_step: "Run each block and drain on every proxy until the store is back, and run `etcdctl endpoint health` on its members.",
        runbook: "operating/fleet.md#fleet-unreachable",
    }
    /// A key in the fleet's store is ignored.
    FleetRecord = "fleet-record", Warning {
        effect: "None for valid agents; the block or the state in this key does not apply here.",
        first_step: "Compare the key files and the versions of all proxies; if they are equal, another client writes to the store.",
        runbook: "operating/fleet.md#fleet-record",
    }
    /// The fleet's store lost records, which the proxies put back.
    FleetStoreOlder = "fleet-store-older", Warning {
        effect: "None; the proxies put the lost records back.",
        first_step: "Find out whether etcd was emptied or restored from a backup, and compare `proscenium blocks` with what you expect.",
        runbook: "operating/fleet.md#fleet-store-older",
    }
    /// The fleet's store is full and accepts no change.
    FleetNoSpace = "fleet-no-space", Warning {
        effect: "None; blocks and drains apply only on the proxy where they are made.",
        first_step: "Compact and defragment etcd as the page describes, then run `etcdctl alarm disarm`.",
        runbook: "operating/fleet.md#fleet-no-space",
    }
    /// The proxy's clock differs from the clocks of most other proxies of the fleet.
    FleetClock = "fleet-clock", Warning {
        effect: "None yet; with a larger difference, valid certificates are refused.",
        first_step: "Run `timedatectl` and `chronyc tracking` on this host, and correct its clock; if it is right, check the clocks of the other proxies.",
        runbook: "operating/fleet.md#fleet-clock",
    }
    /// A drain by another proxy is withheld, because it would take the last available member out of a pool.
    FleetLastMember = "fleet-last-member", Warning {
        effect: "None; this proxy still sends requests to a member that was drained on another one.",
        first_step: "Make another member of the pool available here, or repeat the drain with `--force`.",
        runbook: "operating/fleet.md#fleet-last-member",
    }
    /// The proxies of the fleet have differed from each other for a long time.
    FleetDiffers = "fleet-differs", Warning {
        effect: "Agents may get different answers from different proxies.",
        first_step: "Run `proscenium fleet`, and give all proxies the same version and configuration.",
        runbook: "operating/fleet.md#fleet-differs",
    }
}

impl Alarm {
    /// The word in events, in the status and in metrics.
    pub fn as_str(self) -> &'static str {
        self.declaration().word
    }

    /// What the alarm means: one sentence.
    pub fn meaning(self) -> &'static str {
        self.declaration().meaning.trim_start()
    }

    /// The urgency of an alarm of this kind that is raised without one.
    pub fn urgency(self) -> Urgency {
        self.declaration().urgency
    }

    /// When the urgency is another than that of the kind, for the page about alarms.
    pub fn other_urgency(self) -> Option<(Urgency, &'static str)> {
        match self {
            Self::CaExpiring => {
                Some((Urgency::Critical, "when the CA expires in less than 7 days"))
            }
            Self::ReloadRefused => Some((
                Urgency::Critical,
                "if the next start would fail with the files on disk",
            )),
            _ => None,
        }
    }

    /// What agents notice: one sentence.
    pub fn effect(self) -> &'static str {
        self.declaration().effect
    }

    /// The first step of an operator: an action, or a command to run.
    pub fn first_step(self) -> &'static str {
        self.declaration().first_step
    }

    /// The page to read, as a path below the installed documentation, with its heading.
    pub fn runbook(self) -> &'static str {
        self.declaration().runbook
    }

    /// The alarm that this one turns into if the operator does not act. Callers raise that alarm before they replace this one.
    pub(super) fn more_severe(self) -> Option<Self> {
        match self {
            Self::Trust | Self::CaExpiring => Some(Self::AgentsRefused),
            Self::CertificateExpiring => Some(Self::CertificateInvalid),
            _ => None,
        }
    }
}
