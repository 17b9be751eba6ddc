//! `cargo xtask bench tunnel`: TLS passthrough. It measures bytes per second of CPU time and the memory of idle
//! connections, and compares with nginx's stream module and HAProxy if they are installed. The rounds are interleaved.
//!
//! Only the proxy uses the last core. The output is the median over the rounds, and the ratio.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::{cores::Cores, cpu};
use crate::workspace;

/// The size of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every proxy once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// MiB that each of four connections carries in a round
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Idle connections whose memory is measured
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Use the debug build, to see that it runs
    #[arg(long)]
    debug: bool,
}

/// Number of connections that transfer bytes at the same time.
const BUSY: usize = 4;
/// Maximum memory of an idle connection in the proxy, in KiB.
const IDLE_KIB_MAX: f64 = 12.0;
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the rounds and prints both tables.
pub(super) fn run(options: &Options) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let cores = Cores::here()?;
    cores.keep_us_off_the_last()?;
    let member = source()?;
    let peers = peers(folder.path(), &binary, member)?;
    let mut rates = vec![Vec::new(); peers.len()];
    for round in 1..=options.rounds {
        for (peer, rates) in peers.iter().zip(&mut rates) {
            let rate = peer.measure(&cores, options.mib)?;
            println!(
                "round {round}: {:<12} {rate:8.0} MiB a second of CPU",
                peer.name
            );
            rates.push(rate);
        }
    }
    println!(
        "\n{:<28} {:>14} {:>14}",
        "tunnel", "MiB/CPU s", "ours : theirs"
    );
    let ours = median(&rates[0]);
    for (peer, rates) in peers.iter().zip(&rates) {
        let rate = median(rates);
        println!("{:<28} {rate:>14.0} {:>14.2}", peer.name, ours / rate);
    }
    let each = peers[0].idle_kib(&cores, options.idle)?;
    println!("\n{} idle tunnels: {each:.1} KiB each", options.idle);
    ensure!(
        each <= IDLE_KIB_MAX,
        "an idle tunnel takes more than {IDLE_KIB_MAX} KiB"
    );
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A member that reads a number of MiB from the first eight bytes of a connection and sends that many.
fn source() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let worker = thread::Builder::new().stack_size(64 << 10);
            let _ = worker.spawn(move || {
                let mut asked = [0; 8];
                if stream.read_exact(&mut asked).is_err() {
                    return;
                }
                let piece = vec![b'x'; 1 << 20];
                for _ in 0..u64::from_le_bytes(asked) {
                    if stream.write_all(&piece).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// A proxy that can be started.
struct Peer {
    name: &'static str,
    command: Vec<String>,
    address: SocketAddr,
}

/// Proscenium first, then the other proxies that are installed.
fn peers(folder: &Path, binary: &Path, member: SocketAddr) -> Result<Vec<Peer>> {
    let path = |name: &str| folder.join(name).display().to_string();
    let dir = folder.display();
    let ca = testkit::Ca::named("bench");
    ca.write_ssldir(&folder.join("ssl"), "puppet");
    let ours = free_address()?;
    let text = format!(
        "ssldir = \"{dir}/ssl\"\ncertname = \"puppet\"\nworkers = 1\n\
         [state]\ndirectory = \"{dir}/state\"\n[admin]\nsocket = \"{dir}/admin.sock\"\n\
         [access_log]\npath = \"{dir}/access.log\"\n\
         [listeners.l4]\naddress = \"{ours}\"\npassthrough = \"l4\"\nconnections_max = 100000\nconnections_max_per_address = 100000\n\
         [pools.l4]\nmembers = [\"{member}\"]\ntrusted_headers_off = true\n\
         [pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n"
    );
    fs::write(folder.join("proscenium.toml"), text)?;
    let command = [
        &binary.display().to_string(),
        "run",
        "--config",
        &path("proscenium.toml"),
    ]
    .map(str::to_owned);
    let mut peers = vec![Peer {
        name: "proscenium",
        command: command.into(),
        address: ours,
    }];
    let theirs = free_address()?;
    let module = NGINX_MODULES
        .iter()
        .find(|module| Path::new(module).is_file());
    let module = std::env::var("NGINX_STREAM_MODULE")
        .ok()
        .or_else(|| module.map(|module| (*module).to_owned()));
    match module.filter(|_| workspace::is_installed("nginx")) {
        Some(module) => {
            let text = format!(
                "load_module {module};\ndaemon off;\nworker_processes 1;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx.log crit;\n\
                 events {{ worker_connections 5000; }}\nstream {{ server {{ listen {theirs}; proxy_pass {member}; }} }}\n"
            );
            fs::write(folder.join("nginx.conf"), text)?;
            peers.push(Peer {
                name: "nginx stream",
                command: ["nginx", "-c", &path("nginx.conf")]
                    .map(str::to_owned)
                    .into(),
                address: theirs,
            });
        }
        None => eprintln!("*** nginx with its stream module is not installed ***"),
    }
    let theirs = free_address()?;
    match workspace::is_installed("haproxy") {
        true => {
            let text = format!(
                "global\n nbthread 1\n maxconn 5000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n\
                 listen l4\n bind {theirs}\n server m {member}\n"
            );
            fs::write(folder.join("haproxy.cfg"), text)?;
            peers.push(Peer {
                name: "haproxy",
                command: ["haproxy", "-db", "-f", &path("haproxy.cfg")]
                    .map(str::to_owned)
                    .into(),
                address: theirs,
            });
        }
        false => eprintln!("*** HAProxy is not installed ***"),
    }
    Ok(peers)
}

/// Where nginx packages install the module.
const NGINX_MODULES: [&str; 2] = [
    "/usr/lib/nginx/modules/ngx_stream_module.so",
    "/usr/lib64/nginx/modules/ngx_stream_module.so",
];

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Peer {
    fn start(&self, cores: &Cores) -> Result<Running> {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &cores.last.to_string()])
            .args(&self.command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let running = Running(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while transfer(self.address, 1).is_err() {
            if Instant::now() > deadline {
                bail!("{} did not start", self.name);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// MiB per second of CPU time.
    fn measure(&self, cores: &Cores, mib: usize) -> Result<f64> {
        let running = self.start(cores)?;
        let before = cpu::run_time(running.0.id());
        let address = self.address;
        let carried: Vec<_> = (0..BUSY)
            .map(|_| thread::spawn(move || transfer(address, mib)))
            .collect();
        for carried in carried {
            carried
                .join()
                .map_err(|_| anyhow::anyhow!("a connection broke off"))??;
        }
        let spent = cpu::run_time(running.0.id()).saturating_sub(before);
        Ok((BUSY * mib) as f64 / spent.as_secs_f64())
    }

    /// KiB of resident memory per idle connection, for this number of connections.
    fn idle_kib(&self, cores: &Cores, count: usize) -> Result<f64> {
        let running = self.start(cores)?;
        let before = resident_kib(running.0.id())?;
        let open: Result<Vec<_>, _> = (0..count)
            .map(|_| TcpStream::connect(self.address))
            .collect();
        let open = open.context("the limit of open files is too low")?;
        // Connections are handled in order. Once this one transfers bytes, each earlier one has its connection to the
        // member.
        transfer(self.address, 1).context(
            "a tunnel takes two of the proxy's open files: raise `ulimit -n`, or ask for fewer with --idle",
        )?;
        let grown = resident_kib(running.0.id())?.saturating_sub(before);
        drop(open);
        Ok(grown as f64 / count as f64)
    }
}

/// Requests this number of MiB from the member and reads them.
fn transfer(proxy: SocketAddr, mib: usize) -> Result<()> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.write_all(&(mib as u64).to_le_bytes())?;
    let mut piece = vec![0; 1 << 20];
    let mut left = mib << 20;
    while left > 0 {
        match stream.read(&mut piece)? {
            0 => bail!("{left} bytes are missing"),
            length => left -= length,
        }
    }
    Ok(())
}

fn resident_kib(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.context("no VmRSS")
}

/// A running proxy, which is stopped on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Send SIGTERM first, because nginx's workers survive a parent that is killed. Proscenium would drain, so kill
        // it afterwards.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        thread::sleep(Duration::from_millis(300));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
