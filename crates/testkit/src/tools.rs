//! Programs that tests start and that a machine may lack, each with the Debian packages that provide it. If the program
//! is missing, the test is skipped.

use std::{
    env,
    fs::OpenOptions,
    io::{Write, stderr},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

/// A program that tests start only where it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The web server.
    Apache,
    /// The HTTP client of commands that the documentation shows.
    Curl,
    /// The store of a fleet.
    Etcd,
    /// The command line of that store.
    Etcdctl,
    /// Version control.
    Git,
    /// The program that changes addresses, routes and rules.
    Ip,
    /// The DNS server Knot.
    Knot,
    /// The program that mounts file systems.
    Mount,
    /// The command line of OpenSSL.
    Openssl,
    /// The server that collects metrics.
    Prometheus,
    /// The checks of Prometheus.
    Promtool,
    /// Ruby with the server puma.
    Puma,
    /// The program that prints the headers of ELF files.
    Readelf,
    /// The program that grants other accounts access to files.
    Setfacl,
    /// The tracer of system calls, which can also refuse them.
    Strace,
    /// The checks of systemd.
    SystemdAnalyze,
    /// The program that starts others in separate namespaces.
    Unshare,
    /// Ruby with the server WEBrick.
    Webrick,
}

impl Tool {
    /// Every tool.
    pub const ALL: &[Self] = &[
        Self::Apache,
        Self::Curl,
        Self::Etcd,
        Self::Etcdctl,
        Self::Git,
        Self::Ip,
        Self::Knot,
        Self::Mount,
        Self::Openssl,
        Self::Prometheus,
        Self::Promtool,
        Self::Puma,
        Self::Readelf,
        Self::Setfacl,
        Self::Strace,
        Self::SystemdAnalyze,
        Self::Unshare,
        Self::Webrick,
    ];

    /// The name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Apache => "apache2",
            Self::Curl => "curl",
            Self::Etcd => "etcd",
            Self::Etcdctl => "etcdctl",
            Self::Git => "git",
            Self::Ip => "ip",
            Self::Knot => "knotd",
            Self::Mount => "mount",
            Self::Openssl => "openssl",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
            Self::Puma | Self::Webrick => "ruby",
            Self::Readelf => "readelf",
            Self::Setfacl => "setfacl",
            Self::Strace => "strace",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Unshare => "unshare",
        }
    }

    /// The Debian packages that provide the program.
    pub const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Apache => &["apache2-bin"],
            Self::Curl => &["curl"],
            Self::Etcd => &["etcd-server"],
            Self::Etcdctl => &["etcd-client"],
            Self::Git => &["git"],
            Self::Ip => &["iproute2"],
            Self::Knot => &["knot"],
            Self::Mount => &["mount"],
            Self::Openssl => &["openssl"],
            Self::Prometheus | Self::Promtool => &["prometheus"],
            Self::Puma => &["ruby", "puma"],
            Self::Readelf => &["binutils"],
            Self::Setfacl => &["acl"],
            Self::Strace => &["strace"],
            Self::SystemdAnalyze => &["systemd"],
            Self::Unshare => &["util-linux"],
            Self::Webrick => &["ruby", "ruby-webrick"],
        }
    }

    /// The library that Ruby loads for this tool.
    const fn library(self) -> Option<&'static str> {
        match self {
            Self::Puma => Some("puma"),
            Self::Webrick => Some("webrick"),
            _ => None,
        }
    }

    /// A command that runs the program. If the program is missing, this function prints one line with the test, the
    /// program and its packages, appends the packages to the file that `PROSCENIUM_SKIPPED` names, and returns `None`.
    /// The test must then return.
    ///
    /// # Panics
    /// The program is missing, and `PROSCENIUM_TOOLS=required` is set.
    pub fn command(self) -> Option<Command> {
        let command = self.find();
        if command.is_none() {
            self.skip();
        }
        command
    }

    /// Whether tests can start the program.
    pub fn is_installed(self) -> bool {
        self.find().is_some()
    }

    fn find(self) -> Option<Command> {
        let program = find_program(self.program())?;
        let loads = |library| {
            let mut ruby = Command::new(&program);
            ruby.args(["-r", library, "-e", ""]).stderr(Stdio::null());
            ruby.status().is_ok_and(|status| status.success())
        };
        self.library()
            .is_none_or(loads)
            .then(|| Command::new(program))
    }

    fn skip(self) {
        let packages = self.packages();
        let (program, names) = (self.program(), packages.join(" "));
        skip(&format!("it needs {program} (Debian: {names})"), packages);
    }
}

/// Prints one line with the test and the reason, and records the packages that the test needs.
pub(crate) fn skip(why: &str, packages: &[&str]) {
    let thread = thread::current();
    let line = format!("skipped {}: {why}", thread.name().unwrap_or_default());
    let required = env::var("PROSCENIUM_TOOLS").is_ok_and(|value| value == "required");
    assert!(!required, "PROSCENIUM_TOOLS=required, but {line}");
    // The test harness would capture the output of `eprint!`. Each line is a single write, because tests in several
    // processes share both files.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
    if packages.is_empty() {
        return;
    }
    if let Some(file) = env::var_os("PROSCENIUM_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(file);
        let packages = format!("{}\n", packages.join(" "));
        let written = file.and_then(|mut file| file.write_all(packages.as_bytes()));
        written.expect("the file of PROSCENIUM_SKIPPED can be written");
    }
}

/// The path of a program in `PATH`, or in the directories of root's programs, which not every account has in its
/// `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Output};

    use super::*;

    #[test]
    fn openssl_prints_its_version() {
        let Some(mut openssl) = Tool::Openssl.command() else {
            return;
        };
        let output = openssl.arg("version").output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
    }

    /// Runs the test above in a separate process that finds no program.
    fn without_programs(variable: (&str, &str)) -> Output {
        Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "tools::tests::openssl_prints_its_version"])
            .env("PATH", "/nonexistent")
            .env_remove("PROSCENIUM_TOOLS")
            .env_remove("PROSCENIUM_SKIPPED")
            .env(variable.0, variable.1)
            .output()
            .expect("it starts")
    }

    #[test]
    fn a_test_without_its_program_is_skipped_with_one_line_and_recorded() {
        let directory = tempfile::tempdir().expect("a directory");
        let record = directory.path().join("skipped");
        let variable = ("PROSCENIUM_SKIPPED", record.to_str().expect("UTF-8"));
        for runs in 1..=2 {
            let output = without_programs(variable);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(
                String::from_utf8_lossy(&output.stderr),
                "skipped tools::tests::openssl_prints_its_version: it needs openssl (Debian: openssl)\n"
            );
            let recorded = fs::read_to_string(&record).expect("a record");
            assert_eq!(recorded, "openssl\n".repeat(runs));
        }
    }

    #[test]
    fn a_test_without_its_program_fails_if_tools_are_required() {
        let output = without_programs(("PROSCENIUM_TOOLS", "required"));
        assert_eq!(output.status.code(), Some(101), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = "PROSCENIUM_TOOLS=required, but skipped tools::";
        assert!(text.contains(expected), "{text}");
    }
}
