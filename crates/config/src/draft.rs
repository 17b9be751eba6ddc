//! A configuration on its way: text read and judged, materials still to come.

use std::{path::PathBuf, time::SystemTime};

use crate::{
    agent::Agent,
    config::{AccessLog, Config, EventOutput, MemberTls, Output, Watch, Watching},
    enrolment,
    examination::{Examination, parse},
    forms, identity, keys, listeners,
    materials::{Files, Loaded, Materials, Wanted},
    pools,
    report::{Problem, Report},
    routes,
    section::Section,
    trust::{Named, Naming},
};

/// The text of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file's path, as shown to people.
    pub name: String,
    /// Its contents.
    pub text: String,
}

/// What the command line says over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
}

/// What the machine says where file and command line are silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Those of [`Environment::SSLDIRS`] that exist, in that order.
    pub ssldirs: Vec<PathBuf>,
    /// The machine's full name.
    pub hostname: Option<String>,
    /// Cores this process may use: the default of `workers`.
    pub cores: usize,
    /// The account this process runs as, for the commands in reports.
    pub user: String,
    /// The directory that a service manager has made for what outlasts a restart.
    pub state_directory: Option<PathBuf>,
    /// The time, for the age of the agent's own CRL.
    pub now: Option<SystemTime>,
}

/// A configuration whose text is read and judged.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(crate) source: Source,
    pub(crate) problems: Vec<Problem>,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) credentials: Vec<Named>,
    pub(crate) agent: Agent,
    pub(crate) now: Option<SystemTime>,
    /// Whole only while there is no error.
    pub(crate) config: Option<Config>,
}

impl Environment {
    /// Where a Puppet agent keeps its certificates: Puppet's own packages, then Debian's.
    pub const SSLDIRS: [&str; 2] = ["/etc/puppetlabs/puppet/ssl", "/var/lib/puppet/ssl"];
    /// Where what outlasts a restart is kept if nobody says otherwise.
    pub const STATE_DIRECTORY: &str = "/var/lib/proscenium";
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            ssldirs: Vec::new(),
            hostname: None,
            cores: 1,
            user: "proscenium".into(),
            state_directory: None,
            now: None,
        }
    }
}

impl Draft {
    /// Parses a text and holds it against the schema, then checks what one part of it says of another.
    #[must_use]
    pub fn read(
        source: &Source,
        overrides: &Overrides,
        environment: &Environment,
        files: &dyn Files,
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
        draft.problems = Examination::run(text, &parsed, &keys::ROOT);
        if !parsed.faults.is_empty() {
            draft.problems.append(&mut parsed.faults);
            return draft;
        }
        let root = Section::root(text, parsed.table.get_ref(), &keys::ROOT);
        draft.agent = Agent::find(&root, overrides, environment, files);
        if let Some(Err(fault)) = overrides.certname.as_deref().map(forms::CERTNAME.check) {
            let problem = Problem::error("--certname", fault.message);
            draft.problems.push(problem.expected(forms::CERTNAME.what));
        }
        draft.build(&root, environment);
        draft
    }

    /// The materials it names, each path once.
    #[must_use]
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// Reads the materials it names and judges them.
    ///
    /// # Errors
    /// Everything wrong with text and materials.
    pub fn load(self, files: &dyn Files) -> Result<Loaded, Report> {
        let read = |wanted: &Wanted| (wanted.path.clone(), files.read(wanted));
        let materials = self.wanted.iter().map(read).collect();
        self.finish(materials)
    }

    /// The same text at another time.
    #[must_use]
    pub fn at(&self, now: SystemTime) -> Self {
        Self {
            now: Some(now),
            ..self.clone()
        }
    }

    /// Judges the materials.
    ///
    /// # Errors
    /// Everything wrong with text and materials.
    pub fn finish(mut self, materials: Materials) -> Result<Loaded, Report> {
        self.judge(&materials);
        let config = self.config.take();
        let mut report = self.into_report();
        if let Some(config) = config.as_ref().filter(|_| report.has_errors()) {
            trust_too(config, &materials, &mut report);
        }
        match config {
            Some(config) if !report.has_errors() => Ok(Loaded {
                config,
                materials,
                report,
            }),
            _ => Err(report),
        }
    }

    /// What was found in the text alone.
    #[must_use]
    pub fn into_report(self) -> Report {
        Report::new(&self.source, self.problems)
    }

    /// Builds every crate's settings. Parts that are not right are left out: their errors keep the whole from use.
    fn build(&mut self, root: &Section<'_>, environment: &Environment) {
        let mut problems = std::mem::take(&mut self.problems);
        let mut naming = Naming {
            agent: &self.agent,
            problems: Vec::new(),
            wanted: Vec::new(),
            credentials: Vec::new(),
        };
        let certificates = naming.certificates(root);
        let trust = naming.trust(root);
        let towards_clients = certificates.first().map(|credential| MemberTls {
            credential: credential.clone(),
            ca: trust.ca.clone(),
            crl: trust.crl.clone(),
            name_from_cn: false,
        });
        let upstream = pools::upstream(root, &mut naming.problems);
        identity::check(root, &mut problems);
        let config = Config {
            ssldir: self.agent.ssldir.clone(),
            certname: self.agent.certname.clone(),
            workers: root
                .count("workers")
                .map_or_else(|| environment.cores.max(1), |workers| workers as usize),
            drain_grace: root.duration("drain_grace").unwrap_or_default(),
            listeners: listeners::build(root, &mut problems),
            pools: pools::build(root, &upstream, towards_clients.as_ref(), &mut naming),
            listener_certificates: listeners::certificates(root, &mut naming),
            certificates,
            session_lifetime: root
                .table("tls")
                .duration("session_lifetime")
                .unwrap_or_default(),
            trust,
            materials: watching(&root.table("materials")),
            identity: identity::settings(root),
            form: identity::form(root),
            upstream,
            routes: routes::build(root, &mut problems),
            csr: enrolment::csr(root, &mut problems),
            ca: enrolment::ca(root),
            exchange: pools::exchange(root),
            access_log: access_log(&root.table("access_log")),
            events: match log_daemon(&root.table("events")) {
                Some(daemon) => EventOutput::Daemon(daemon),
                None => EventOutput::Stderr,
            },
            admin: admin::settings::Settings {
                socket: root.table("admin").path("socket").unwrap_or_default(),
            },
            state_directory: state_directory(root, environment),
        };
        enrolment::check_edge(root, &config, &mut problems);
        enrolment::check_renewal(root, &config, &mut problems);
        problems.append(&mut naming.problems);
        (self.wanted, self.credentials) = (naming.wanted, naming.credentials);
        self.problems = problems;
        self.config = Some(config);
    }
}

/// Whoever has something to mend hears of bundles and lists too. A right file does not: they are built, and told of,
/// where a start or a reload prepares them, and large lists are not to be read twice.
fn trust_too(config: &Config, materials: &Materials, report: &mut Report) {
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
            // A list that is [trust]'s own has been told.
            let message = problem.to_string();
            if report.problems.iter().any(|told| told.message == message) {
                continue;
            }
            report.fail(&format!("pools.{}.tls", pool.pool.name), &problem, &[]);
        }
    }
}

/// What is wrong with the bytes of a bundle and its lists; what is absent or closed to us has been told.
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
    let material = pki::Material {
        bundle,
        crls,
        ..pki::Material::default()
    };
    let policy = &config.trust.settings;
    let built = pki::TrustStore::build(&material, policy, &config.identity, None);
    let mut problems = built.err().unwrap_or_default();
    // That there are no lists has been told as well.
    problems.retain(|problem| !matches!(problem, pki::PkiProblem::NoCrl));
    problems
}

/// Key path of the setting that a problem of `[trust]`'s materials is about.
#[must_use]
pub fn trust_key(problem: &pki::PkiProblem) -> &'static str {
    match problem.is_about_crls() {
        true => "trust.crl",
        false => "trust.ca",
    }
}

fn watching(section: &Section<'_>) -> Watching {
    Watching {
        watch: match section.text("watch").as_deref() {
            Some("poll") => Watch::Poll,
            Some("off") => Watch::Off,
            _ => Watch::Notify,
        },
        interval: section.duration("interval").unwrap_or_default(),
        settle: section.duration("settle").unwrap_or_default(),
        settle_max: section.duration("settle_max").unwrap_or_default(),
    }
}

fn state_directory(root: &Section<'_>, environment: &Environment) -> PathBuf {
    let named = root.table("state").path("directory");
    let made = || environment.state_directory.clone();
    named
        .or_else(made)
        .unwrap_or_else(|| Environment::STATE_DIRECTORY.into())
}

fn access_log(section: &Section<'_>) -> AccessLog {
    let default = telemetry::settings::AccessLogSettings::default();
    AccessLog {
        output: match (section.text("path").as_deref(), log_daemon(section)) {
            (None | Some("stdout"), _) => Output::Stdout,
            (_, Some(daemon)) => Output::Daemon(daemon),
            (Some(path), None) => Output::File(path.into()),
        },
        settings: telemetry::settings::AccessLogSettings {
            format: match section.text("format").as_deref() {
                Some("json") => telemetry::settings::Format::Json,
                _ => telemetry::settings::Format::Combined,
            },
            queue_max: section
                .count("queue_max")
                .map_or(default.queue_max, |count| count as usize),
        },
    }
}

/// The log daemon that `path` names, if it names one.
fn log_daemon(section: &Section<'_>) -> Option<telemetry::DaemonSettings> {
    let path = section.text("path")?;
    let (kind, socket) = forms::log_daemon(&path)?;
    let facility = section.text("facility");
    let protocol = match kind {
        "journal" => telemetry::Protocol::Journal,
        _ => telemetry::Protocol::Syslog(
            facility
                .and_then(|word| telemetry::Facility::parse(&word))
                .unwrap_or_default(),
        ),
    };
    Some(telemetry::DaemonSettings {
        protocol,
        socket: socket.unwrap_or_else(|| protocol.usual_socket()).into(),
    })
}
