//! A configuration that is parsed and checked, and whose materials are not read yet.

use std::{path::PathBuf, time::SystemTime};

use crate::{
    access_logs::{self, set_facility},
    agent::Agent,
    binding::{Base, Bound},
    config::{Config, EventOutput, MemberTls},
    enrolment,
    environment::{Environment, Overrides},
    examination::{Examination, parse},
    fleet, forms, identity,
    keys::{self, Root},
    listeners,
    materials::{LoadedConfig, MaterialName, MaterialReader, Materials},
    needs::Needs,
    pools,
    report::{ConfigReport, ConfigSource, Problem},
    routes,
    section::Section,
    trust::{Named, Naming},
    values::word,
};

/// A configuration that is parsed and checked. Its materials are not read yet.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(crate) source: ConfigSource,
    pub(crate) problems: Vec<Problem>,
    pub(crate) wanted: Vec<MaterialName>,
    pub(crate) credentials: Vec<Named>,
    pub(crate) agent: Agent,
    pub(crate) now: Option<SystemTime>,
    /// Complete only if the report has no error.
    pub(crate) config: Option<Config>,
}

impl Draft {
    /// Parses a file, checks it against the schema, and then checks that its settings are consistent.
    #[must_use]
    pub fn read(
        source: &ConfigSource,
        overrides: &Overrides,
        environment: &Environment,
        files: &dyn MaterialReader,
    ) -> Self {
        let mut draft = Self {
            source: source.clone(),
            problems: Vec::new(),
            wanted: Vec::new(),
            credentials: Vec::new(),
            agent: Agent::default(),
            now: environment.now,
            config: None,
        };
        let text = source.text.as_str();
        let mut parsed = parse(text);
        draft.problems = Examination::run(text, &parsed, Root::TABLE);
        if !parsed.faults.is_empty() {
            draft.problems.append(&mut parsed.faults);
            return draft;
        }
        let root = Section::root(text, parsed.table.get_ref(), Root::TABLE);
        draft.agent = Agent::find(&root, overrides, environment, files);
        if let Some(Err(fault)) = overrides.certname.as_deref().map(forms::CERTNAME.check) {
            let problem = Problem::error("--certname", fault.message);
            draft.problems.push(problem.expected(forms::CERTNAME.what));
        }
        draft.build(&root, environment);
        draft
    }

    /// The materials that the file names, each path once.
    #[must_use]
    pub fn wanted(&self) -> &[MaterialName] {
        &self.wanted
    }

    /// The text that was parsed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Reads the materials that the file names and validates them.
    ///
    /// # Errors
    /// The report of all problems of the file and its materials.
    pub fn load(self, files: &dyn MaterialReader) -> Result<LoadedConfig, ConfigReport> {
        let read = |wanted: &MaterialName| (wanted.path.clone(), files.read(wanted));
        let materials = self.wanted.iter().map(read).collect();
        self.finish(materials)
    }

    /// The same draft with another time.
    #[must_use]
    pub fn at(&self, now: SystemTime) -> Self {
        Self {
            now: Some(now),
            ..self.clone()
        }
    }

    /// Validates the materials.
    ///
    /// # Errors
    /// The report of all problems of the file and its materials.
    pub fn finish(mut self, materials: Materials) -> Result<LoadedConfig, ConfigReport> {
        self.validate(&materials);
        let config = self.config.take();
        let mut report = self.into_report();
        if let Some(config) = config.as_ref().filter(|_| report.has_errors()) {
            report_trust_problems(config, &materials, &mut report);
        }
        match config {
            Some(config) if !report.has_errors() => Ok(LoadedConfig {
                config,
                materials,
                report,
            }),
            _ => Err(report),
        }
    }

    /// The problems found without reading materials.
    #[must_use]
    pub fn into_report(self) -> ConfigReport {
        ConfigReport::new(&self.source, self.problems)
    }

    /// Builds the settings of every crate. Settings with errors are left out: a configuration with errors is not used.
    fn build(&mut self, root: &Section<'_>, environment: &Environment) {
        let mut problems = std::mem::take(&mut self.problems);
        let mut naming = Naming {
            agent: &self.agent,
            problems: Vec::new(),
            wanted: Vec::new(),
            credentials: Vec::new(),
        };
        let mut config = Config::base();
        read_tables(root, &mut config);
        check_metrics(root, &config, &mut problems);
        access_logs::read(root, &mut config, &mut problems);
        config.ssldir.clone_from(&self.agent.ssldir);
        config.certname.clone_from(&self.agent.certname);
        if !root.is_set(Root::workers) {
            config.workers = environment.cores.max(1);
        }
        if let Some(made) = environment.state_directory.as_ref().filter(|_| {
            let section = root.table(Root::state);
            !section.is_set(keys::State::directory)
        }) {
            config.state_directory.clone_from(made);
        }
        identity::complete(root, &mut config.form);
        config.listeners = listeners::build(root, &mut problems);
        let needs = Needs::of(root, &mut config);
        naming.trust(root, &mut config.trust, needs.trust);
        config.certificates = naming.certificates(root, needs.certificates);
        config.listener_certificates = listeners::certificates(root, &mut naming);
        let towards_clients = config.certificates.first().map(|credential| MemberTls {
            credential: credential.clone(),
            ca: config.trust.ca.clone(),
            crl: config.trust.crl.clone(),
            name_from_cn: false,
        });
        config.fleet = fleet::fleet(root, towards_clients.as_ref(), &mut naming);
        pools::upstream(root, &config, &mut naming.problems);
        config.pools = pools::build(root, &config, towards_clients.as_ref(), &mut naming);
        identity::complete_rules(root, &mut config);
        identity::check(root, &mut config, &mut problems);
        config.csr.allow = enrolment::lifted_rules(root, &config.csr, &mut problems);
        enrolment::edge(root, &mut config, &mut problems);
        routes::build(root, &mut config, needs.routes, &mut problems);
        enrolment::check_renewal(root, &config, &mut problems);
        enrolment::check_own_renewal(root, &config, &mut problems);
        problems.append(&mut naming.problems);
        (self.wanted, self.credentials) = (naming.wanted, naming.credentials);
        self.problems = problems;
        self.config = Some(config);
    }
}

/// Adds the problems of CA bundles and CRLs to a report that has errors already, so that all can be fixed at once.
/// For a file without errors, the start or the reload builds the trust stores and reports their problems, because large CRLs
/// must not be parsed twice.
fn report_trust_problems(config: &Config, materials: &Materials, report: &mut ConfigReport) {
    let mut seen = vec![(&config.trust.ca, &config.trust.crl)];
    for problem in trust_problems(config, materials, seen[0]) {
        report.fail(trust_key(&problem), &problem, &[]);
    }
    for pool in &config.pools {
        let Some(tls) = &pool.tls else { continue };
        let named = (&tls.ca, &tls.crl);
        if seen.contains(&named) {
            continue;
        }
        seen.push(named);
        for problem in trust_problems(config, materials, named) {
            // The pool inherits the files of [trust], and this problem is already in the report.
            let message = problem.to_string();
            if report
                .problems
                .iter()
                .any(|reported| reported.message == message)
            {
                continue;
            }
            report.fail(&format!("pools.{}.tls", pool.pool.name), &problem, &[]);
        }
    }
}

/// Problems in the content of a CA bundle and its CRLs. Missing and unreadable files are already reported.
fn trust_problems(
    config: &Config,
    materials: &Materials,
    (ca, crl): (&Vec<PathBuf>, &Vec<PathBuf>),
) -> Vec<pki::PkiProblem> {
    let read = |paths: &[PathBuf]| -> Option<Vec<_>> {
        let found: Option<Vec<_>> = paths
            .iter()
            .map(|path| materials.get(path)?.as_ref().ok())
            .collect();
        let blobs = found?.into_iter().flat_map(|material| &material.blobs);
        Some(
            blobs
                .map(|blob| pki::Named::new(&blob.name, blob.bytes.clone()))
                .collect(),
        )
    };
    let (Some(bundle), Some(crls)) = (read(ca), read(crl)) else {
        return Vec::new();
    };
    if bundle.is_empty() {
        return Vec::new();
    }
    let material = pki::TrustMaterial {
        bundle,
        crls,
        ..pki::TrustMaterial::default()
    };
    let policy = &config.trust.settings;
    let built = pki::TrustStore::build(&material, policy, &config.identity, None);
    let mut problems = built.err().unwrap_or_default();
    // A missing CRL is already reported as well.
    problems.retain(|problem| !matches!(problem, pki::PkiProblem::NoCrl));
    problems
}

/// Key path of the `[trust]` setting that a problem belongs to.
#[must_use]
pub fn trust_key(problem: &pki::PkiProblem) -> &'static str {
    if problem.is_about_crls() {
        "trust.crl"
    } else {
        "trust.ca"
    }
}

/// The metrics listener has no authentication, so only this machine should reach it.
fn check_metrics(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    let exposed = config.metrics.address;
    let exposed = exposed.filter(|address| !address.ip().to_canonical().is_loopback());
    if let Some(address) = exposed {
        let message = format!(
            "every client that can connect to {address} can read the metrics: this listener has no TLS and no authentication"
        );
        let section = root.table(Root::metrics);
        let problem = section.warning(keys::Metrics::address, message);
        problems.push(problem.help("use a loopback address, or allow only Prometheus and load balancers with a packet filter"));
    }
}

/// Reads the top-level tables into `config`, each by the keys that it declares.
fn read_tables(root: &Section<'_>, config: &mut Config) {
    Root::read(root, config);
    keys::Tls::read(&root.table(Root::tls), config);
    keys::Trust::read(&root.table(Root::trust), config);
    keys::Materials::read(&root.table(Root::materials), config);
    keys::Identity::read(&root.table(Root::identity), config);
    keys::Upstream::read(&root.table(Root::upstream), config);
    keys::Csr::read(&root.table(Root::csr), config);
    keys::Ca::read(&root.table(Root::ca), config);
    keys::Admin::read(&root.table(Root::admin), config);
    keys::Metrics::read(&root.table(Root::metrics), config);
    keys::State::read(&root.table(Root::state), config);
    keys::Dns::read(&root.table(Root::dns), config);
    let events = root.table(Root::events);
    keys::Events::read(&events, config);
    if let EventOutput::Daemon(daemon) = &mut config.events {
        set_facility(daemon, events.value(keys::Events::facility, &word()));
    }
}
