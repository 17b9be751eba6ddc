//! A real etcd cluster with mutual TLS: etcd from Debian.

use std::{
    fs::{self, File},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{ca::Ca, port::HeldPort, tools::Tool, wait::wait_until};

/// Time for a member to listen.
const LIMIT: Duration = Duration::from_secs(20);

/// The cluster; its members are killed when it is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    directory: TempDir,
    members: Vec<EtcdMember>,
}

#[derive(Debug)]
struct EtcdMember {
    name: String,
    clients: HeldPort,
    peers: HeldPort,
    child: Mutex<Option<Child>>,
}

impl EtcdCluster {
    /// Starts a cluster whose members and clients have certificates of this CA. If etcd is not installed, the test is skipped
    /// ([`Tool::command`]).
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start(ca: &Ca, members: usize) -> Option<Self> {
        Tool::Etcd.command()?;
        let cluster = Self {
            directory: tempfile::tempdir().expect("a directory"),
            members: (1..=members)
                .map(|number| EtcdMember {
                    name: format!("etcd{number}"),
                    clients: HeldPort::take(),
                    peers: HeldPort::take(),
                    child: Mutex::default(),
                })
                .collect(),
        };
        let write = |name: &str, text: &str| fs::write(cluster.path(name), text).expect("a file");
        let credential = ca.server("etcd");
        write("ca.pem", &ca.bundle_pem());
        write("cert.pem", &credential.chain_pem());
        write("key.pem", &credential.key_pem);
        (0..members).for_each(|index| cluster.run(index));
        (0..members).for_each(|index| cluster.wait_until_it_listens(index));
        Some(cluster)
    }

    /// The endpoints, as a list of TOML.
    pub fn endpoints(&self) -> String {
        let endpoints = self.members.iter();
        let endpoints = endpoints.map(|member| format!("\"https://{}\"", member.clients.address()));
        format!("[{}]", endpoints.collect::<Vec<_>>().join(", "))
    }

    /// Kills a member.
    pub fn kill(&self, index: usize) {
        let child = self.members[index]
            .child
            .lock()
            .expect("no test has failed")
            .take();
        if let Some(mut child) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a killed member again.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart(&self, index: usize) {
        self.run(index);
        self.wait_until_it_listens(index);
    }

    /// Removes all data of a killed member.
    ///
    /// # Panics
    /// If it cannot be removed.
    pub fn wipe(&self, index: usize) {
        let data = self.path(&self.members[index].name);
        fs::remove_dir_all(data).expect("its data");
    }

    /// Freezes a member (SIGSTOP), or lets it run again.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self, index: usize, is_frozen: bool) {
        let child = self.members[index]
            .child
            .lock()
            .expect("no test has failed");
        let signal = match is_frozen {
            true => Signal::STOP,
            false => Signal::CONT,
        };
        let pid = Pid::from_child(child.as_ref().expect("it runs"));
        kill_process(pid, signal).expect("it runs");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, index: usize) {
        let member = &self.members[index];
        let url = |port: &HeldPort| format!("https://{}", port.address());
        let cluster = self.members.iter();
        let cluster = cluster.map(|member| format!("{}={}", member.name, url(&member.peers)));
        let file = |name: &str| self.path(name).display().to_string();
        let mut etcd = Tool::Etcd.command().expect("it was installed at the start");
        let log = File::create(self.path(&format!("{}.log", member.name))).expect("a log");
        let value = |etcd: &mut Command, option: &str, value: &str| {
            etcd.arg(format!("--{option}={value}"));
        };
        for (option, text) in [
            ("name", member.name.clone()),
            ("data-dir", file(&member.name)),
            ("listen-client-urls", url(&member.clients)),
            ("advertise-client-urls", url(&member.clients)),
            ("listen-peer-urls", url(&member.peers)),
            ("initial-advertise-peer-urls", url(&member.peers)),
            ("initial-cluster", cluster.collect::<Vec<_>>().join(",")),
            ("client-cert-auth", "true".to_owned()),
            ("trusted-ca-file", file("ca.pem")),
            ("cert-file", file("cert.pem")),
            ("key-file", file("key.pem")),
            ("peer-client-cert-auth", "true".to_owned()),
            ("peer-trusted-ca-file", file("ca.pem")),
            ("peer-cert-file", file("cert.pem")),
            ("peer-key-file", file("key.pem")),
        ] {
            value(&mut etcd, option, &text);
        }
        // Variables named ETCD_… would be options too.
        let etcd = etcd.env_clear().stdout(Stdio::null()).stderr(log);
        let child = etcd.spawn().expect("etcd starts");
        *member.child.lock().expect("no test has failed") = Some(child);
    }

    #[track_caller]
    fn wait_until_it_listens(&self, index: usize) {
        let member = &self.members[index];
        let listens = || TcpStream::connect(member.clients.address()).ok();
        if wait_until(LIMIT, listens).is_none() {
            let log = fs::read_to_string(self.path(&format!("{}.log", member.name)));
            panic!(
                "{} does not listen: {}",
                member.name,
                log.unwrap_or_default()
            );
        }
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

/// The lines of `[fleet]` for a proxy in front of this cluster.
pub fn fleet_table(cluster: &EtcdCluster, key_file: &Path) -> String {
    format!(
        "[fleet]\netcd = {}\nsite = \"test\"\nkey_file = {key_file:?}\n",
        cluster.endpoints()
    )
}
