//! A real etcd cluster with mutual TLS: etcd from Debian.

use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    net::SocketAddr,
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use serde_json::Value;

use crate::{
    ca::{Ca, TestCredential, write_file},
    namespaces::{cut_off, cut_off_account},
    port::HeldPort,
    tools::{Tool, skip},
    wait::wait_until,
};

/// Maximum time until a member listens.
const LIMIT: Duration = Duration::from_secs(20);

/// The account, without rights, of a first member that can be cut off.
const SEPARATE_ACCOUNT: u32 = 65534;

/// The cluster. Its members are killed on drop.
#[derive(Debug)]
pub struct EtcdCluster {
    directory: TempDir,
    members: Vec<EtcdMember>,
    options: Vec<String>,
    /// Whether the first member runs as a separate account, so that it can be cut off from the others.
    is_separable: bool,
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
    /// The cluster does not start.
    /// If it does not start.
    #[track_caller]
    pub fn start(ca: &Ca, members: usize) -> Option<Self> {
        Self::start_with(ca, members, &[])
    }

    /// Like `start`, with further options. `{dir}` is a directory with the file `crl.pem` ([`EtcdCluster::write_crl`]).
    ///
    /// # Panics
    /// The cluster does not start.
    #[track_caller]
    pub fn start_with(ca: &Ca, members: usize, options: &[&str]) -> Option<Self> {
        Self::make(ca, members, options, false)
    }

    /// Starts a cluster whose first member can be cut off from the others ([`EtcdCluster::cut_off_first`]). This needs
    /// root, because that member runs as another account.
    ///
    /// # Panics
    /// The cluster does not start.
    #[track_caller]
    pub fn start_separable(ca: &Ca, members: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("it needs root, to start a program as another account", &[]);
            return None;
        }
        Self::make(ca, members, &[], true)
    }

    #[track_caller]
    fn make(ca: &Ca, members: usize, options: &[&str], is_separable: bool) -> Option<Self> {
        Tool::Etcd.command()?;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display().to_string();
        let cluster = Self {
            options: options
                .iter()
                .map(|option| option.replace("{dir}", &path))
                .collect(),
            is_separable,
            directory,
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
        write("ca.pem", &ca.bundle_pem());
        // Base64 of 32 bytes.
        write_file(&cluster.key_file(), &format!("{}=", "A".repeat(43)), 0o600);
        cluster.write_credential(&ca.server("etcd"));
        // The user that has all rights after rights are configured.
        let root = ca.agent("root");
        write("root.pem", &root.chain_pem());
        write("root-key.pem", &root.key_pem);
        cluster.write_crl(ca);
        if is_separable {
            let data = cluster.path(&cluster.members[0].name);
            fs::create_dir(&data).expect("a directory");
            chown(&data, Some(SEPARATE_ACCOUNT), None).expect("root may do this");
            let passable = Permissions::from_mode(0o711);
            fs::set_permissions(cluster.directory.path(), passable).expect("its own directory");
        }
        (0..members).for_each(|index| cluster.run(index));
        (0..members).for_each(|index| cluster.wait_until_it_listens(index));
        Some(cluster)
    }

    /// The endpoints, as a TOML list.
    pub fn endpoints(&self) -> String {
        let endpoints = self.members.iter();
        let endpoints = endpoints.map(|member| format!("\"https://{}\"", member.clients.address()));
        format!("[{}]", endpoints.collect::<Vec<_>>().join(", "))
    }

    /// The path of the fleet's key file, in the directory of the cluster.
    pub fn key_file(&self) -> PathBuf {
        self.path("fleet.key")
    }

    /// The lines of `[fleet]` for a proxy in front of this cluster.
    pub fn fleet_table(&self) -> String {
        self.fleet_table_of(&self.endpoints())
    }

    /// The lines of `[fleet]` for a proxy with these endpoints, which are a TOML list.
    pub fn fleet_table_of(&self, endpoints: &str) -> String {
        let key_file = self.key_file();
        format!("[fleet]\netcd = {endpoints}\nsite = \"test\"\nkey_file = {key_file:?}\n")
    }

    /// The address of a member for clients.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.members[index].clients.address()
    }

    /// The number of the leader.
    ///
    /// # Panics
    /// There is no leader in time.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let is_leader = |index: &usize| {
            let status = self.try_control(&[*index], &["endpoint", "status", "-w", "json"], &[]);
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let status = &status[0]["Status"];
            let (own, leader) = (&status["header"]["member_id"], &status["leader"]);
            own.is_u64() && own == leader
        };
        let leader = || (0..self.members.len()).find(is_leader);
        wait_until(LIMIT, leader).expect("a cluster has a leader")
    }

    /// How often a member has become the leader since it started.
    pub fn elections(&self, index: usize) -> usize {
        let log = self.path(&format!("{}.log", self.members[index].name));
        let log = fs::read_to_string(log).unwrap_or_default();
        log.matches("became leader at term").count()
    }

    /// The process id of a member; `None` if the member was killed.
    ///
    /// # Panics
    /// A lock is poisoned, because another thread has panicked.
    pub fn pid(&self, index: usize) -> Option<u32> {
        let child = self.members[index].child.lock();
        child.expect("no test has failed").as_ref().map(Child::id)
    }

    /// Writes the CRL of the leaves' issuer, for etcd.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn write_crl(&self, ca: &Ca) {
        fs::write(self.path("crl.pem"), ca.issuing_crl_pem()).expect("a file");
    }

    /// Writes another certificate for all members, which etcd reads at the next connection.
    ///
    /// # Panics
    /// The files cannot be written.
    pub fn write_credential(&self, credential: &TestCredential) {
        let write = |name: &str, text: &str| fs::write(self.path(name), text).expect("a file");
        write("key.pem", &credential.key_pem);
        write("cert.pem", &credential.chain_pem());
    }

    /// A path below the directory of this cluster.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Runs etcdctl as the user root, with this input; returns its output.
    ///
    /// # Panics
    /// etcdctl still fails at the end of a time limit. It is retried, because a cluster that has just started has no
    /// leader.
    #[track_caller]
    pub fn control(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut last = None;
        let done = wait_until(LIMIT, || {
            let output = self.try_control(&[0], arguments, input);
            let stdout = output.status.success().then(|| output.stdout.clone());
            last = Some(output);
            stdout
        });
        done.unwrap_or_else(|| panic!("etcdctl {arguments:?}: {last:?}"))
    }

    /// Runs etcdctl with arguments that spaces separate.
    ///
    /// # Panics
    /// etcdctl fails.
    pub fn execute(&self, words: &str) {
        self.control(&words.split(' ').collect::<Vec<_>>(), &[]);
    }

    /// Runs etcdctl as the user root, with these members as endpoints.
    ///
    /// # Panics
    /// etcdctl does not start.
    pub fn try_control(&self, members: &[usize], arguments: &[&str], input: &[u8]) -> Output {
        let endpoints = members.iter();
        let endpoints = endpoints.map(|index| format!("https://{}", self.address(*index)));
        let mut control = Tool::Etcdctl.command().expect("the test has asked for it");
        let mut control = control
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.collect::<Vec<_>>().join(",")])
            .args(["--cacert", &self.file("ca.pem")])
            .args(["--cert", &self.file("root.pem")])
            .args(["--key", &self.file("root-key.pem")])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("etcdctl starts");
        // etcdctl may have ended without reading its input.
        let _ = control.stdin.take().expect("a pipe").write_all(input);
        control.wait_with_output().expect("it has output")
    }

    /// The value of a key; `None` if the key does not exist.
    ///
    /// # Panics
    /// etcdctl fails.
    #[track_caller]
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        let mut value = self.control(&["get", key, "--print-value-only"], &[]);
        // The last byte is the newline that etcdctl adds.
        value.pop().map(|_| value)
    }

    /// The keys below a prefix.
    ///
    /// # Panics
    /// etcdctl fails.
    #[track_caller]
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.control(&["get", prefix, "--prefix", "--keys-only"], &[]);
        let keys = String::from_utf8_lossy(&keys);
        let keys = keys.lines().filter(|line| !line.is_empty());
        keys.map(str::to_owned).collect()
    }

    /// Replaces the data of a cluster, whose only member was killed, with a snapshot, and sets this cluster token.
    ///
    /// # Panics
    /// etcdctl fails.
    #[track_caller]
    pub fn restore_snapshot(&self, snapshot: &str, token: &str) {
        self.wipe(0);
        let name = &self.members[0].name;
        let peers = format!("https://{}", self.members[0].peers.address());
        let restored = self.try_control(
            &[0],
            &[
                "snapshot",
                "restore",
                snapshot,
                "--name",
                name,
                "--data-dir",
                &self.file(name),
                "--initial-cluster",
                &format!("{name}={peers}"),
                "--initial-advertise-peer-urls",
                &peers,
                "--initial-cluster-token",
                token,
            ],
            &[],
        );
        assert!(restored.status.success(), "{restored:?}");
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
    /// The member does not start.
    #[track_caller]
    pub fn restart(&self, index: usize) {
        self.run(index);
        self.wait_until_it_listens(index);
    }

    /// Removes all data of a killed member.
    ///
    /// # Panics
    /// The data cannot be removed.
    pub fn wipe(&self, index: usize) {
        let data = self.path(&self.members[index].name);
        fs::remove_dir_all(data).expect("its data");
    }

    /// Drops all packets between the first member and the others from now on. Clients still reach that member. Only for
    /// a separable cluster, in the test's own namespaces.
    ///
    /// # Panics
    /// The member cannot be cut off.
    pub fn cut_off_first(&self) {
        assert!(self.is_separable, "it does not run as another account");
        let [first, others @ ..] = &self.members[..] else {
            return;
        };
        cut_off(first.peers.address());
        for other in others {
            cut_off_account(SEPARATE_ACCOUNT, other.peers.address());
        }
    }

    /// Freezes a member (SIGSTOP), or makes it run again.
    ///
    /// # Panics
    /// The member does not run.
    pub fn freeze(&self, index: usize, is_frozen: bool) {
        let child = self.members[index]
            .child
            .lock()
            .expect("no test has failed");
        let signal = if is_frozen {
            Signal::STOP
        } else {
            Signal::CONT
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
        let file = |name: &str| self.file(name);
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
        etcd.args(&self.options);
        // etcd would read variables named ETCD_… as options.
        let etcd = etcd.env_clear().stdout(Stdio::null()).stderr(log);
        if self.is_separable && index == 0 {
            etcd.uid(SEPARATE_ACCOUNT).gid(SEPARATE_ACCOUNT);
        }
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
