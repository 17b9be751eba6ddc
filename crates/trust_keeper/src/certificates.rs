//! The proxy's own certificates: how long each is valid, and whether one may replace an active one.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use config::{CaOptions, Config};
use pki::{CertificatePurpose, Credential, Fingerprint, TrustStore, TrustedCaStatus};
use proxy::Generation;
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use state::{Credentials, Foundation, PreparedTls, times::timestamp};
use telemetry::{Alarm, FoundAlarm};

/// How long before its expiry a certificate raises an alarm. A certificate with a short life is renewed in its last quarter, so
/// no notice is longer than a quarter of its life.
const NOTICES: [Duration; 3] = [days(30), days(7), days(1)];
/// The same for a CA. Its renewal concerns every host of the estate, so it takes longer.
const CA_NOTICES: [Duration; 4] = [days(90), days(30), CA_CRITICAL, days(1)];
/// A CA that expires in less than this time is critical.
const CA_CRITICAL: Duration = days(7);

/// A certificate that is valid for less than this time in total comes from a CA that renews certificates
/// (`allow-auto-renewal`). A Puppet CA that does not renew certificates signs them for five years.
pub const RENEWED_LIFE_MAX: Duration = days(365);

/// The total validity of the first certificate of a PEM file, in days, if it is so short that the CA renews certificates.
pub fn renewed_after(pem: &str) -> Option<u64> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let facts = pki::facts_of(&der)?;
    let life = facts
        .not_after
        .as_secs()
        .checked_sub(facts.not_before.as_secs())?;
    (life < RENEWED_LIFE_MAX.as_secs()).then_some(life / 86_400)
}

/// Where the proxy presents a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateUse {
    /// A listener presents it to clients.
    Listener,
    /// It authenticates the proxy to the members of a pool.
    Pool,
}

/// One use of a certificate of the proxy. A certificate that several listeners or pools use has a value for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Where it is presented.
    pub role: CertificateUse,
    /// Name of the listener or of the pool.
    pub used_by: String,
    /// The file of the chain.
    pub file: PathBuf,
    /// The subject of the leaf (RFC 2253).
    pub subject: String,
    /// Whether it has a subjectAltName.
    pub(crate) has_names: bool,
    pub(crate) not_before: UnixTime,
    /// The last second in which it is valid.
    pub not_after: UnixTime,
    /// The intermediate CA of the chain that expires first. `None` if the leaf expires first.
    ends_with: Option<String>,
    /// The certificates that are presented, the leaf first.
    chain: Vec<CertificateDer<'static>>,
    fingerprint: Fingerprint,
}

/// Why agents or members refuse a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Expired,
    NotYetValid,
    /// It has no subjectAltName. Servers do not look for one in a client certificate.
    Nameless,
}

/// The active certificates, once for each use.
pub fn of(foundation: &Foundation) -> Vec<OwnCertificate> {
    own(
        &foundation.config,
        &foundation.credentials,
        &foundation.member_tls,
    )
}

/// All certificates of a configuration, once for each use.
pub fn own(
    config: &Config,
    credentials: &Credentials,
    member_tls: &[PreparedTls],
) -> Vec<OwnCertificate> {
    let mut own = Vec::new();
    for listener in &config.listeners {
        for (_, files) in config.certificates_of(&listener.name) {
            let credential = credentials.get(files);
            own.extend(credential.map(|credential| {
                OwnCertificate::new(
                    CertificateUse::Listener,
                    &listener.name,
                    &files.chain,
                    credential,
                )
            }));
        }
    }
    for pool in &config.pools {
        let Some(settings) = &pool.tls else { continue };
        let tls = member_tls.iter().find(|tls| tls.settings == *settings);
        own.extend(tls.map(|tls| {
            let file = &settings.credential.chain;
            OwnCertificate::new(CertificateUse::Pool, &pool.pool.name, file, &tls.credential)
        }));
    }
    own
}

/// Why a change must not become active. Each sentence names a certificate that agents or members would refuse and that would
/// replace a valid certificate. The check ignores certificates that are active already, and those that replace an invalid
/// certificate.
pub fn refused_replacements(
    old: &[OwnCertificate],
    new: &[OwnCertificate],
    now: UnixTime,
) -> Vec<String> {
    let mut reasons = BTreeMap::new();
    for candidate in new {
        let Some(fault) = candidate.fault(now) else {
            continue;
        };
        let replaced = replaced_by(candidate, old, new, now);
        if let Some(valid) = replaced.into_iter().find(|old| old.fault(now).is_none()) {
            reasons.entry(&candidate.file).or_insert_with(|| {
                format!(
                    "{candidate} {}; the active {valid} is valid until {} and stays active: provide a valid certificate with its key",
                    candidate.describe(fault),
                    timestamp(valid.not_after)
                )
            });
        }
    }
    reasons.into_values().collect()
}

/// The active certificates that the candidate would replace: the certificate in the same file, or else all certificates of the
/// same listener or pool. A new listener or pool is compared with all others, because it may be a renamed one.
fn replaced_by<'o>(
    candidate: &OwnCertificate,
    old: &'o [OwnCertificate],
    new: &[OwnCertificate],
    now: UnixTime,
) -> Vec<&'o OwnCertificate> {
    let same_role = old.iter().filter(|old| old.role == candidate.role);
    let (same_use, others): (Vec<_>, Vec<_>) =
        same_role.partition(|old| old.used_by == candidate.used_by);
    let is_active = |old: &&OwnCertificate| old.fingerprint == candidate.fingerprint;
    if same_use.iter().chain(&others).any(is_active) {
        // Agents are locked out only if the change removes the last valid certificate of the same use.
        let mut of_same_use = new.iter().filter(|new| candidate.has_same_use(new));
        return match of_same_use.all(|new| new.fault(now).is_some()) {
            true => same_use,
            false => Vec::new(),
        };
    }
    let active = match same_use.is_empty() {
        true => others,
        false => same_use,
    };
    match active.iter().find(|old| old.file == candidate.file) {
        Some(same_file) => vec![same_file],
        None => active,
    }
}

/// The alarms about these certificates: the kind, the file and the message. A certificate is revoked if the CRL of any of
/// `stores` lists it. `failures` has an entry for each file whose certificate the CA has not renewed: why, and what to do. `ca`
/// has the options that make the command for a renewal connect to the CA.
pub fn alarms(
    own: &[OwnCertificate],
    stores: &[&TrustStore],
    failures: &BTreeMap<PathBuf, String>,
    ca: &CaOptions,
    now: UnixTime,
) -> Vec<FoundAlarm> {
    let mut by_file: BTreeMap<&Path, Vec<&OwnCertificate>> = BTreeMap::new();
    for certificate in own {
        let uses = by_file.entry(&certificate.file).or_default();
        uses.push(certificate);
    }
    let alarms = by_file.into_iter().filter_map(|(file, uses)| {
        let certificate = uses.first()?;
        let remedy = failures.get(file).cloned();
        let remedy = remedy.unwrap_or_else(|| renewal_by_hand(file, ca));
        let revoked = || uses.iter().find_map(|used| used.revoked(stores, now));
        let (alarm, what) = certificate.alarm(&remedy, ca, revoked, now)?;
        if alarm == Alarm::CertificateExpiring && certificate.ends_with_active_ca(stores) {
            return None;
        }
        let uses: Vec<_> = uses.iter().map(|used| used.usage()).collect();
        let message = format!("{certificate} of {} {what}", uses.join(", "));
        Some(FoundAlarm::new(alarm, file.display().to_string(), message))
    });
    alarms.collect()
}

/// The alarms about CAs that expire soon: the kind, the CA and the message. There is one alarm for each CA, however many
/// certificates it issued, and none for a CA whose bundle has a later certificate with the same key. `stores` are the bundles
/// that verify clients and members.
pub fn ca_alarms(stores: &[&TrustStore], now: UnixTime) -> Vec<FoundAlarm> {
    let alarms = active_cas(stores, now).into_iter().filter_map(|ca| {
        let notice = due_notice((ca.not_before, ca.not_after), &CA_NOTICES, now)?;
        let about = pki::about_ca(&ca.subject, &ca.source);
        let message = format!(
            "{about} expires on {}, in less than {}: from then on, every certificate that it issued is refused, those of \
             agents, members and this proxy included. Renew it with the same key, which keeps these certificates valid, and \
             distribute it to every host: see guides/ca-expiry.md",
            timestamp(ca.not_after),
            span(notice)
        );
        let is_critical = ca.not_after.as_secs() - now.as_secs() < CA_CRITICAL.as_secs();
        Some(FoundAlarm::new(Alarm::CaExpiring, about, message).critical_if(is_critical))
    });
    alarms.collect()
}

/// The CAs of these bundles that are valid and that no later certificate with the same key supersedes.
fn active_cas(stores: &[&TrustStore], now: UnixTime) -> Vec<TrustedCaStatus> {
    let mut active: Vec<TrustedCaStatus> = Vec::new();
    for ca in stores.iter().flat_map(|store| store.cas_status(now)) {
        let is_same = |other: &TrustedCaStatus| {
            (&other.subject, other.not_after) == (&ca.subject, ca.not_after)
        };
        if ca.in_time && !ca.is_superseded && !active.iter().any(is_same) {
            active.push(ca);
        }
    }
    active
}

/// The shortest notice that has begun, in seconds before the expiry.
fn due_notice(validity: (UnixTime, UnixTime), notices: &[Duration], now: UnixTime) -> Option<u64> {
    let left = validity.1.as_secs() - now.as_secs();
    let begun = notice_seconds(validity, notices).filter(|notice| left < *notice);
    begun.min()
}

/// The notices for a certificate with these dates, in seconds before its expiry.
fn notice_seconds(
    (not_before, not_after): (UnixTime, UnixTime),
    notices: &[Duration],
) -> impl Iterator<Item = u64> {
    let life = not_after.as_secs().saturating_sub(not_before.as_secs());
    let seconds = notices.iter();
    seconds.map(move |notice| expiry_notice_seconds(life, *notice))
}

/// The next second at which an alarm about these certificates, or about the CAs of these bundles, changes without a
/// reload. The dates of CAs themselves are in [`TrustStore::next_change`].
pub(crate) fn next_change(
    own: &[OwnCertificate],
    stores: &[&TrustStore],
    now: UnixTime,
) -> Option<UnixTime> {
    let begins = |validity: (UnixTime, UnixTime), notices: &[Duration]| {
        let end = validity.1.as_secs();
        let begins = notice_seconds(validity, notices).map(move |notice| end - notice.min(end) + 1);
        begins.collect::<Vec<_>>()
    };
    let of_own = own.iter().flat_map(|certificate| {
        let begins = begins(certificate.validity(), &NOTICES).into_iter();
        let end = certificate.not_after.as_secs().saturating_add(1);
        begins.chain([certificate.not_before.as_secs(), end])
    });
    let cas = active_cas(stores, now).into_iter();
    let of_cas = cas.flat_map(|ca| begins((ca.not_before, ca.not_after), &CA_NOTICES));
    let all = of_own.chain(of_cas);
    let next = all.filter(|at| *at > now.as_secs()).min()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(next)))
}

/// How many seconds before its expiry a certificate that is valid for `life` seconds raises an alarm, for a given notice.
pub fn expiry_notice_seconds(life: u64, notice: Duration) -> u64 {
    notice.as_secs().min(life / 4)
}

impl OwnCertificate {
    fn new(role: CertificateUse, used_by: &str, file: &Path, credential: &Credential) -> Self {
        Self {
            role,
            used_by: used_by.to_owned(),
            file: file.to_owned(),
            subject: credential.subject().to_owned(),
            has_names: !credential.names().is_empty(),
            not_before: credential.not_before(),
            not_after: credential.not_after(),
            ends_with: credential.ends_with().map(str::to_owned),
            chain: credential.chain().to_vec(),
            fingerprint: credential.fingerprint(),
        }
    }

    /// The use in words, for example `listener agents`.
    pub fn usage(&self) -> String {
        format!("{} {}", self.role.as_str(), self.used_by)
    }

    fn has_same_use(&self, other: &Self) -> bool {
        (self.role, &self.used_by) == (other.role, &other.used_by)
    }

    fn date_fault(&self, now: UnixTime) -> Option<Fault> {
        if now > self.not_after {
            Some(Fault::Expired)
        } else if now < self.not_before {
            Some(Fault::NotYetValid)
        } else {
            None
        }
    }

    fn fault(&self, now: UnixTime) -> Option<Fault> {
        let is_nameless = self.role == CertificateUse::Listener && !self.has_names;
        self.date_fault(now)
            .or_else(|| is_nameless.then_some(Fault::Nameless))
    }

    fn describe(&self, fault: Fault) -> String {
        match fault {
            Fault::Expired => {
                format!(
                    "expired on {}{}",
                    timestamp(self.not_after),
                    self.first_to_expire()
                )
            }
            Fault::NotYetValid => format!("is not valid before {}", timestamp(self.not_before)),
            Fault::Nameless => "has no subjectAltName, so agents refuse it".to_owned(),
        }
    }

    /// A sentence that names the CRL that revokes the certificate, if one does.
    fn revoked(&self, stores: &[&TrustStore], now: UnixTime) -> Option<String> {
        let purpose = match self.role {
            CertificateUse::Listener => CertificatePurpose::Server,
            CertificateUse::Pool => CertificatePurpose::Client,
        };
        let mut stores = stores.iter();
        stores.find_map(|store| store.revocation_of(&self.chain, purpose, now))
    }

    /// The alarm about this certificate. `remedy`: what to do about a certificate that expires or has expired. `revoked`: a
    /// sentence that names the CRL that revokes it.
    fn alarm(
        &self,
        remedy: &str,
        ca: &CaOptions,
        revoked: impl FnOnce() -> Option<String>,
        now: UnixTime,
    ) -> Option<(Alarm, String)> {
        let refused_by = match self.role {
            CertificateUse::Listener => "agents",
            CertificateUse::Pool => "members",
        };
        if let Some(fault) = self.date_fault(now) {
            let what = self.describe(fault);
            let remedy = match fault {
                Fault::NotYetValid => "check the clock of this host",
                _ => remedy,
            };
            let what = format!("{what}, so {refused_by} refuse it: {remedy}");
            return Some((Alarm::CertificateInvalid, what));
        }
        if let Some(detail) = revoked() {
            let what = format!(
                "is revoked, so {refused_by} that check CRLs refuse it. {detail} {}",
                replacement(&self.file, ca)
            );
            return Some((Alarm::CertificateInvalid, what));
        }
        let notice = due_notice(self.validity(), &NOTICES, now)?;
        let what = format!(
            "expires on {}{}, in less than {}: {remedy}",
            timestamp(self.not_after),
            self.first_to_expire(),
            span(notice)
        );
        Some((Alarm::CertificateExpiring, what))
    }

    /// Names the CA of the chain that expires first. Empty if the leaf expires first.
    fn first_to_expire(&self) -> String {
        let ca = self.ends_with.as_ref();
        ca.map_or_else(String::new, |ca| {
            format!(" (with the intermediate CA {ca} of its chain)")
        })
    }

    fn validity(&self) -> (UnixTime, UnixTime) {
        (self.not_before, self.not_after)
    }

    /// When the certificate can no longer be verified: the earliest expiry on its path. `stores` are the bundles of its
    /// possible verifiers; the first bundle that has its CA decides.
    pub fn path_end(&self, stores: &[&TrustStore]) -> UnixTime {
        let above = stores.iter().find_map(|store| store.end_above(&self.chain));
        above.map_or(self.not_after, |end| end.min(self.not_after))
    }

    /// Whether a CA above it expires no later than the certificate, so that only a renewed CA makes it valid for longer.
    pub(crate) fn ends_with_its_ca(&self, stores: &[&TrustStore]) -> bool {
        let above = stores.iter().find_map(|store| store.end_above(&self.chain));
        above.is_some_and(|end| end <= self.not_after)
    }

    /// Whether a CA of this bundle issued it.
    pub fn is_issued_by(&self, store: &TrustStore) -> bool {
        store.end_above(&self.chain).is_some()
    }

    /// Whether an intermediate CA of its chain limits its validity and is in a bundle, without a later expiry there. The alarm
    /// about that CA covers this certificate.
    fn ends_with_active_ca(&self, stores: &[&TrustStore]) -> bool {
        let ends = self.ends_with.iter();
        let mut ends = ends.flat_map(|ca| stores.iter().filter_map(|store| store.ca_end(ca)));
        ends.any(|end| end <= self.not_after)
    }
}

/// The options that name the first member of the pool `ca`.
pub fn ca_options(generation: &Generation) -> CaOptions {
    let pool = generation
        .ca_pool
        .and_then(|pool| generation.pools.get(pool));
    let first = pool.and_then(|pool| pool.members.first());
    CaOptions::at(first.map_or("", |member| &member.connector.address))
}

/// How an operator renews a certificate. The agent's command renews a certificate in an ssldir, if the CA renews certificates.
/// `puppet ssl renew_cert` is shorter, but agents before OpenVox 9 do not have it.
pub(crate) fn renewal_by_hand(chain: &Path, ca: &CaOptions) -> String {
    match of_ssldir(chain) {
        Some((ssldir, certname)) => format!(
            "run `puppet ssl bootstrap --hostcert_renewal_interval 90d --ssldir {} --certname {certname}{ca}` (Puppet 8), or replace both files and run `proscenium reload`",
            ssldir.display()
        ),
        None => "renew it, replace both files, and run `proscenium reload`".to_owned(),
    }
}

/// How an operator replaces a revoked certificate. The CA does not renew it.
fn replacement(chain: &Path, ca: &CaOptions) -> String {
    match of_ssldir(chain) {
        Some((ssldir, certname)) => {
            let of = format!("--ssldir {} --certname {certname}", ssldir.display());
            format!(
                "Request a new one with a new key: `puppet ssl clean {of}`, then `puppet ssl bootstrap {of}{ca}`, then `proscenium reload`"
            )
        }
        None => "Request a new one with a new key, replace both files, and run `proscenium reload`"
            .to_owned(),
    }
}

/// The ssldir and the certname of a chain file at `SSLDIR/certs/CERTNAME.pem`.
pub(crate) fn of_ssldir(chain: &Path) -> Option<(&Path, &str)> {
    let certs = chain.parent().filter(|certs| certs.ends_with("certs"))?;
    let certname = chain.file_name()?.to_str()?.strip_suffix(".pem")?;
    Some((certs.parent()?, certname))
}

impl fmt::Display for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate {} ({})", self.file.display(), self.subject)
    }
}

impl CertificateUse {
    /// The word in messages and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Pool => "pool",
        }
    }
}

/// Formats seconds in the largest unit that is precise enough, rounded up.
fn span(seconds: u64) -> String {
    match seconds {
        86_400 => "1 day".to_owned(),
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds.div_ceil(60)),
        7200..172_800 => format!("{} hours", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    /// A certificate of five years that expires in `left` seconds, used by listener `agents`.
    fn ending_in(file: &str, left: i64) -> OwnCertificate {
        let not_after = NOW.checked_add_signed(left).unwrap();
        OwnCertificate {
            role: CertificateUse::Listener,
            used_by: "agents".to_owned(),
            file: PathBuf::from(file),
            subject: "CN=puppet".to_owned(),
            has_names: true,
            not_before: at(not_after - 5 * 365 * DAY),
            not_after: at(not_after),
            ends_with: None,
            chain: Vec::new(),
            fingerprint: Fingerprint::of([format!("{file} {left}").as_bytes()]),
        }
    }

    fn good(file: &str) -> OwnCertificate {
        ending_in(file, 365 * DAY as i64)
    }

    fn expired(file: &str) -> OwnCertificate {
        ending_in(file, -60)
    }

    fn nameless(file: &str) -> OwnCertificate {
        OwnCertificate {
            has_names: false,
            fingerprint: Fingerprint::of([&b"nameless"[..]]),
            ..good(file)
        }
    }

    fn not_yet_valid(file: &str) -> OwnCertificate {
        OwnCertificate {
            not_before: at(NOW + 60),
            fingerprint: Fingerprint::of([&b"not yet"[..]]),
            ..good(file)
        }
    }

    fn of(role: CertificateUse, used_by: &str, certificate: OwnCertificate) -> OwnCertificate {
        OwnCertificate {
            role,
            used_by: used_by.to_owned(),
            ..certificate
        }
    }

    #[test]
    fn a_valid_certificate_is_not_replaced_by_one_that_clients_refuse() {
        use CertificateUse::{Listener, Pool};
        let with_valid = |certificate| vec![good("a"), certificate];
        for (what, old, new, is_refused) in [
            ("renewed", vec![good("a")], vec![good("a")], false),
            ("expired", vec![good("a")], vec![expired("a")], true),
            ("not yet", vec![good("a")], vec![not_yet_valid("a")], true),
            ("nameless", vec![good("a")], vec![nameless("a")], true),
            ("another file", vec![good("a")], vec![expired("b")], true),
            (
                "in addition to a valid one",
                vec![good("a")],
                with_valid(expired("b")),
                true,
            ),
            ("as before", vec![expired("a")], vec![expired("a")], false),
            (
                "none was valid",
                vec![expired("a")],
                vec![nameless("a")],
                false,
            ),
            (
                "in addition to one, as before",
                with_valid(expired("b")),
                with_valid(expired("b")),
                false,
            ),
            (
                "in addition to one, still bad",
                with_valid(expired("b")),
                with_valid(nameless("b")),
                false,
            ),
            ("fixed", vec![expired("a")], vec![good("a")], false),
            (
                "the valid one is removed",
                with_valid(expired("b")),
                vec![expired("b")],
                true,
            ),
            (
                "a listener of another name",
                vec![good("a")],
                vec![of(Listener, "others", expired("b"))],
                true,
            ),
            (
                "a listener with an expired one of its own",
                vec![good("a"), of(Listener, "others", expired("b"))],
                vec![good("a"), of(Listener, "others", nameless("b"))],
                false,
            ),
            (
                "an expired one under another name",
                vec![good("a"), of(Listener, "others", expired("b"))],
                vec![good("a"), of(Listener, "renamed", expired("b"))],
                false,
            ),
            (
                "towards members",
                vec![of(Pool, "ca", good("a"))],
                vec![of(Pool, "ca", expired("a"))],
                true,
            ),
            (
                "nameless towards members",
                vec![of(Pool, "ca", good("a"))],
                vec![of(Pool, "ca", nameless("a"))],
                false,
            ),
            (
                "the first towards members",
                vec![good("a")],
                vec![good("a"), of(Pool, "ca", expired("b"))],
                false,
            ),
        ] {
            let reasons = refused_replacements(&old, &new, at(NOW));
            assert_eq!(!reasons.is_empty(), is_refused, "{what}: {reasons:?}");
        }
    }

    #[test]
    fn a_refusal_names_both_certificates_and_the_reason() {
        let reasons = refused_replacements(&[good("a")], &[expired("b")], at(NOW));
        assert_eq!(
            reasons,
            [
                "certificate b (CN=puppet) expired on 2027-01-15T07:59:00Z; the active certificate a (CN=puppet) is valid until \
                 2028-01-15T08:00:00Z and stays active: provide a valid certificate with its key"
            ]
        );
    }

    #[test]
    fn an_alarm_is_raised_at_each_notice_and_at_expiry() {
        let alarm = |certificate: &OwnCertificate, now| {
            let own = [
                certificate.clone(),
                of(CertificateUse::Pool, "ca", certificate.clone()),
            ];
            let mut alarms = alarms(&own, &[], &BTreeMap::new(), &CaOptions::default(), at(now));
            assert!(alarms.len() < 2, "one for each file: {alarms:?}");
            alarms.pop()
        };
        let long = ending_in("a", 0);
        let short = OwnCertificate {
            not_before: at(NOW - DAY),
            ..ending_in("a", 0)
        };
        for (certificate, left, expected) in [
            (&long, 30 * DAY, None),
            (&long, 30 * DAY - 1, Some("in less than 30 days")),
            (&long, 7 * DAY, Some("in less than 30 days")),
            (&long, 7 * DAY - 1, Some("in less than 7 days")),
            (&long, DAY - 1, Some("in less than 1 day:")),
            (&long, 0, Some("in less than 1 day:")),
            (&short, DAY / 4, None),
            (&short, DAY / 4 - 1, Some("in less than 6 hours")),
        ] {
            let found = alarm(certificate, NOW - left);
            let Some(words) = expected else {
                assert_eq!(found, None, "{left}");
                continue;
            };
            let FoundAlarm {
                alarm: kind,
                about,
                message,
                ..
            } = found.unwrap();
            assert_eq!((kind, about.as_str()), (Alarm::CertificateExpiring, "a"));
            assert!(message.contains(words), "{left}: {message}");
            assert!(
                message.contains("of listener agents, pool ca expires on 2027-01-15T08:00:00Z")
            );
        }
        for (certificate, words) in [
            (expired("a"), "expired on 2027-01-15T07:59:00Z, so agents"),
            (
                not_yet_valid("a"),
                "is not valid before 2027-01-15T08:01:00Z",
            ),
        ] {
            let found = alarm(&certificate, NOW).unwrap();
            assert_eq!(found.alarm, Alarm::CertificateInvalid);
            assert!(found.message.contains(words), "{}", found.message);
        }
    }

    #[test]
    fn an_alarm_says_which_command_renews_the_certificate() {
        let ca = CaOptions::at("ca.example.com:8140");
        let message = |file: &str, failures: &[(&str, &str)]| {
            let failures = failures
                .iter()
                .map(|(file, why)| (PathBuf::from(file), (*why).to_owned()));
            let mut alarms = alarms(
                &[ending_in(file, 60)],
                &[],
                &failures.collect(),
                &ca,
                at(NOW),
            );
            alarms.pop().unwrap().message
        };
        let in_ssldir = "/var/lib/puppet/ssl/certs/puppet.example.com.pem";
        let command = "`puppet ssl bootstrap --hostcert_renewal_interval 90d --ssldir /var/lib/puppet/ssl --certname puppet.example.com --ca_server ca.example.com`";
        let failures = [("/etc/other.pem", "the CA is down"), (in_ssldir, "no room")];
        for (file, failures, words) in [
            (in_ssldir, &[][..], command),
            ("/etc/pki/puppet.pem", &[], ": renew it, replace both files"),
            (
                "/etc/certs/puppet.crt",
                &[],
                ": renew it, replace both files",
            ),
            (in_ssldir, &failures[..1], command),
            (in_ssldir, &failures, ": no room"),
        ] {
            let message = message(file, failures);
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    /// A task that sleeps until the next change misses no alarm.
    #[test]
    fn alarms_change_at_the_next_date_and_not_before() {
        let own = [ending_in("a", 40 * DAY as i64), not_yet_valid("b")];
        let ca = CaOptions::default();
        let alarms = |own: &[OwnCertificate], now| alarms(own, &[], &BTreeMap::new(), &ca, now);
        let (mut now, mut changes) = (NOW, Vec::new());
        while let Some(next) = next_change(&own, &[], at(now)) {
            let next = next.as_secs();
            assert_eq!(alarms(&own, at(now)), alarms(&own, at(next - 1)));
            assert_ne!(alarms(&own, at(now)), alarms(&own, at(next)));
            changes.push(next - NOW);
            now = next;
        }
        let of_a = [10 * DAY + 1, 33 * DAY + 1, 39 * DAY + 1, 40 * DAY + 1];
        let of_b = [335 * DAY + 1, 358 * DAY + 1, 364 * DAY + 1, 365 * DAY + 1];
        let expected: Vec<_> = [60].into_iter().chain(of_a).chain(of_b).collect();
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_remaining_time_is_rounded_up_in_words() {
        for (seconds, words) in [
            (1, "1 seconds"),
            (119, "119 seconds"),
            (900, "15 minutes"),
            (901, "16 minutes"),
            (7200, "2 hours"),
            (DAY, "1 day"),
            (2 * DAY + 1, "3 days"),
            (30 * DAY, "30 days"),
        ] {
            assert_eq!(span(seconds), words, "{seconds}");
        }
    }
}
