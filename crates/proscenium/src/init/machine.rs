//! What a machine says about its Puppet estate: `puppet.conf`, the ssldir, running programs and ports in use.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use config::PuppetConf;

const AGENT: &[&str] = PuppetConf::AGENT;
const ANY: &[&str] = PuppetConf::ANY;
/// Maximum number of bytes that are read from one file of the machine.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The port that agents connect to.
const AGENTS_PORT: u16 = 8140;
/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Programs that matter to a proxy for Puppet: a word of the command line, and the name to print.
const PROGRAMS: &[(&str, &str)] = &[
    ("puppet-server-release.jar", "Puppet Server"),
    ("puppetserver.jar", "Puppet Server"),
    ("puppetdb.jar", "PuppetDB"),
    ("apache2", "Apache"),
    ("httpd", "Apache"),
    ("nginx", "nginx"),
    ("haproxy", "HAProxy"),
    ("proscenium", "Proscenium"),
];

/// Where a distribution of Puppet has its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Directory of `puppet.conf`.
    pub(super) confdir: &'static str,
    vardir: &'static str,
    /// Directory of the agent's certificates.
    pub(super) ssldir: &'static str,
    /// Configuration directory of Puppet Server.
    pub(super) server: &'static str,
}

/// The packages of Puppet and OpenVox, then those of Debian.
const LAYOUTS: [Layout; 2] = [
    Layout {
        confdir: config::Environment::CONFDIRS[0],
        vardir: "/opt/puppetlabs/puppet/cache",
        ssldir: config::Environment::SSLDIRS[0],
        server: "/etc/puppetlabs/puppetserver",
    },
    Layout {
        confdir: config::Environment::CONFDIRS[1],
        vardir: "/var/lib/puppet",
        ssldir: config::Environment::SSLDIRS[1],
        server: "/etc/puppet/puppetserver",
    },
];

/// A fact, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) value: String,
    pub(super) source: String,
}

/// The facts of a machine. Everything may be missing.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) layout: Layout,
    pub(super) puppet_conf: Option<String>,
    /// The Puppet agent's ssldir.
    pub(super) ssldir: Option<Found>,
    /// The name of this machine's certificate.
    pub(super) certname: Option<Found>,
    /// Address of the server that the agent of this machine uses.
    pub(super) server: Option<Found>,
    /// Address of the CA server that the agent of this machine uses.
    pub(super) ca_server: Option<Found>,
    /// The domain in whose SRV records the agent of this machine finds its servers.
    pub(super) srv_domain: Option<Found>,
    /// Names of running programs.
    pub(super) programs: BTreeSet<&'static str>,
    /// For how many days the certificate of this machine is valid in total, if that is so short that its CA renews
    /// certificates.
    pub(super) renewed_after: Option<u64>,
    /// Whether a program listens on the port that agents connect to.
    pub(super) agents_port_in_use: bool,
}

impl Machine {
    /// Looks at the machine below `root`, which is `/` except in tests. A file that cannot be read provides no facts.
    pub(super) fn examine(root: &Path) -> Self {
        let at = |path: &str| root.join(path.trim_start_matches('/'));
        let conf_of = |layout: &Layout| format!("{}/puppet.conf", layout.confdir);
        let is_used =
            |layout: &&Layout| at(&conf_of(layout)).is_file() || at(layout.ssldir).is_dir();
        let layout = *LAYOUTS.iter().find(is_used).unwrap_or(&LAYOUTS[0]);
        let path = conf_of(&layout);
        let text = read(&at(&path));
        let conf = PuppetConf::parse(text.as_deref().unwrap_or_default());
        let found = |sections: &[&str], key: &str| {
            let value = resolved(conf.get(sections, key)?, &conf, &layout)?;
            let source = format!("`{key}` in {path}");
            Some(Found { value, source })
        };
        let ssldir = found(ANY, "ssldir").or_else(|| {
            at(layout.ssldir).is_dir().then(|| Found {
                value: layout.ssldir.to_owned(),
                source: "the default of the Puppet agent".to_owned(),
            })
        });
        let certname = found(ANY, "certname")
            .or_else(|| only_certname(&at(&ssldir.as_ref()?.value), &ssldir.as_ref()?.value));
        let certificate = certname
            .as_ref()
            .zip(ssldir.as_ref())
            .map(|(name, ssldir)| at(&ssldir.value).join(format!("certs/{}.pem", name.value)));
        let uses_srv = conf.get(AGENT, "use_srv_records") == Some("true");
        Self {
            server: with_port(found(AGENT, "server"), &conf, &["serverport", "masterport"]),
            ca_server: with_port(
                found(AGENT, "ca_server"),
                &conf,
                &["ca_port", "serverport", "masterport"],
            ),
            srv_domain: found(AGENT, "srv_domain").filter(|_| uses_srv),
            renewed_after: certificate.and_then(|file| lifecycle::renewed_after(&read(&file)?)),
            puppet_conf: text.map(|_| path.clone()),
            programs: programs(&at("/proc")),
            agents_port_in_use: listens(&at("/proc/net"), AGENTS_PORT),
            layout,
            ssldir,
            certname,
        }
    }

    /// Whether an address of a server, as the agent knows it, is a name of this machine itself.
    pub(super) fn is_own(&self, address: &str) -> bool {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let is = |found: &Found| found.value.eq_ignore_ascii_case(host);
        self.certname.as_ref().is_some_and(is)
    }
}

/// A value with the directories that it refers to; `None` if it refers to another setting.
fn resolved(value: &str, conf: &PuppetConf, layout: &Layout) -> Option<String> {
    let vardir = conf.get(ANY, "vardir").unwrap_or(layout.vardir);
    let confdir = conf.get(ANY, "confdir").unwrap_or(layout.confdir);
    let value = value
        .replace("${vardir}", vardir)
        .replace("$vardir", vardir)
        .replace("${confdir}", confdir)
        .replace("$confdir", confdir);
    (!value.contains('$')).then_some(value)
}

/// The address of a server: its host with the first of these ports that `puppet.conf` sets.
fn with_port(host: Option<Found>, conf: &PuppetConf, ports: &[&str]) -> Option<Found> {
    let Found { value, source } = host?;
    let mut ports = ports.iter().filter_map(|port| conf.get(AGENT, port));
    let port = ports
        .next()
        .map_or_else(|| AGENTS_PORT.to_string(), str::to_owned);
    Some(Found {
        value: format!("{value}:{port}"),
        source,
    })
}

/// The name of the only certificate in an ssldir that has a key.
fn only_certname(directory: &Path, shown: &str) -> Option<Found> {
    let names = fs::read_dir(directory.join("certs")).ok()?.flatten();
    let mut names = names.filter_map(|entry| {
        let path: PathBuf = entry.path();
        let name = path.file_stem()?.to_str()?.to_owned();
        let is_pem = path.extension().is_some_and(|ending| ending == "pem");
        let has_key = directory.join(format!("private_keys/{name}.pem")).exists();
        (is_pem && name != "ca" && has_key).then_some(name)
    });
    let (first, second) = (names.next()?, names.next());
    second.is_none().then(|| Found {
        value: first,
        source: format!("the only certificate with a key in {shown}"),
    })
}

/// The programs of [`PROGRAMS`] that run, except this process.
fn programs(proc: &Path) -> BTreeSet<&'static str> {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir(proc) else {
        return BTreeSet::new();
    };
    let processes = processes.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.bytes().all(|byte| byte.is_ascii_digit()) && *name != *own
    });
    let lines = processes.filter_map(|entry| read(&entry.path().join("cmdline")));
    lines.filter_map(|line| program(&line)).collect()
}

/// The program of a command line, whose words end with NUL. Java is known by the archive that it runs.
fn program(line: &str) -> Option<&'static str> {
    let mut words = line.split('\0').map(|word| {
        let word = word.rsplit('/').next().unwrap_or_default();
        // nginx and Apache rename their processes: "nginx: master process ...".
        word.split([':', ' ']).next().unwrap_or_default()
    });
    let known = |word: &str| PROGRAMS.iter().find(|(name, _)| *name == word);
    let first = words.next()?;
    let archive = || words.find_map(|word| known(word).filter(|_| word.ends_with(".jar")));
    known(first).or_else(archive).map(|(_, shown)| *shown)
}

/// Whether a socket listens on this port, on any address.
fn listens(net: &Path, port: u16) -> bool {
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = read(&net.join(table)).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            local.ends_with(&port) && words.nth(1) == Some(LISTENING)
        })
    })
}

/// The beginning of a file; `None` if it cannot be read.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_command_lines() {
        for (line, expected) in [
            (
                "/usr/bin/java\0-Xms2g\0-cp\0/opt/puppetlabs/server/apps/puppetserver/puppet-server-release.jar\0",
                Some("Puppet Server"),
            ),
            ("/usr/bin/java\0-jar\0other.jar\0", None),
            ("/usr/sbin/haproxy\0-Ws\0", Some("HAProxy")),
            ("nginx: master process /usr/sbin/nginx\0", Some("nginx")),
            ("vim\0nginx\0", None),
            ("", None),
        ] {
            assert_eq!(program(line), expected, "{line:?}");
        }
    }
}
