//! The command line, as typed.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use admin::{NamedValue, Timestamp};
use clap::{Args, Parser, Subcommand, error::ErrorKind};

use crate::{exit_codes, failure::Failure, output, version};

/// A TLS-terminating reverse proxy for Puppet servers.
#[derive(Debug, Parser)]
#[command(
    name = "proscenium",
    version,
    long_version = version::LINES,
    after_long_help = exit_codes::help(""),
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs"
)]
pub(crate) struct Arguments {
    /// Configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/proscenium/proscenium.toml"
    )]
    pub(crate) config: PathBuf,
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Write a configuration for this machine, and print what to do on the CA server and on the compilers
    ///
    /// The command reads puppet.conf, the ssldir, the running programs and the ports in use. It changes nothing except
    /// the file that it writes. With --compiler-ca it writes no configuration, but a CA with which compilers accept the
    /// proxy and no other client.
    Init(Init),
    /// Run the proxy until SIGTERM; SIGHUP reloads the configuration, certificates and CRLs
    #[command(after_long_help = exit_codes::help("run"))]
    Run(Run),
    /// Test the configuration, the certificates, the CRLs and this host, and print every problem
    ///
    /// The test binds addresses without listening and creates nothing. It accepts addresses and sockets that the running
    /// proxy uses.
    #[command(after_long_help = exit_codes::help("check"))]
    Check(Check),
    /// Show how the proxy would handle a request: path rule, class, route, access, pool, members
    ///
    /// The proxy does not have to be running; blocks are read from the state directory.
    #[command(after_long_help = exit_codes::help("explain"))]
    Explain(Explain),
    /// Test the deployment: files, certificates, CRLs, every member, and how members treat forged identity headers
    ///
    /// The test changes nothing, and the proxy does not have to be running.
    #[command(after_long_help = exit_codes::help("doctor"))]
    Doctor(Doctor),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Reload the configuration, certificates and CRLs of the running proxy, and wait for the result
    Reload(Reload),
    /// Apply a configuration again that the running proxy has used before
    ///
    /// The proxy stores the last ten configuration texts that it has applied. The command shows the difference, tests the
    /// configuration, and asks before it applies it. Without --write, the configuration file stays as it is, and the next
    /// reload or restart applies the file.
    Rollback(Rollback),
    /// Reopen the log files of the running proxy, after log rotation has renamed them
    ///
    /// The proxy reloads nothing else. SIGUSR1 has the same effect.
    #[command(name = "reopen-logs")]
    ReopenLogs(Socket),
    /// Show or change the log level of the running proxy
    ///
    /// A change lasts until the proxy stops; the next start uses `run --log`.
    #[command(name = "log-level")]
    LogLevel(LogLevel),
    /// Show the state of the running proxy: generation, alarms, listeners, pools, CRLs
    ///
    /// Alarms are ordered: each cause is followed by what follows from it, and critical alarms come before warnings.
    #[command(after_long_help = exit_codes::help("status"))]
    Status(StatusParts),
    /// Show what has happened in the last day: alarms, changes of members, reloads, operators' changes, starts and stops
    ///
    /// Without --since, the command shows the last 50 events. If the proxy is not running, they are read from the state
    /// directory.
    Events(Events),
    /// Show requests in flight and in queues, and the slowest requests of the last hours
    Requests(View),
    /// List certificates of the proxy and of agents that expire within 60 days, and CAs that expire within 90 days
    Certificates(View),
    /// Show the requests of one agent as a timeline, run by run, from the access log
    Trace(Trace),
    /// Show pools, members, queues, rates and refusals of the running proxy, live; q ends it
    Top(Socket),
    /// Serve a page about the running proxy on a loopback address, until the terminal closes or an hour without a request
    ///
    /// The command prints the address, which works once. The page only shows unless --actions is given; the proxy logs
    /// changes as those of this account. From another machine, see the page about it in the operator's guide.
    Ui(Ui),
    /// Write a file for a support request: status, metrics, lists and the active configuration, without keys
    ///
    /// If the proxy does not answer, the file has the results of check and doctor, the state and limits of the unit, the
    /// clock, and the ends of the journal and of the access log.
    #[command(name = "support-bundle", after_long_help = exit_codes::help("support-bundle"))]
    SupportBundle(SupportBundle),
    /// Show the active CRLs, fetch CRLs from the CA, or accept that a CRL drops revocations
    #[command(subcommand)]
    Crl(CrlVerb),
    /// Put a member back into service
    #[command(override_usage = usage("ready"), after_long_help = exit_codes::help("ready"))]
    Ready(Members),
    /// Send no new requests to a member; its current requests finish
    ///
    /// The state survives reloads and restarts of the proxy. The last available member of a pool is drained only with
    /// --force.
    #[command(override_usage = usage("drain"), after_long_help = exit_codes::help("drain"))]
    Drain(Withdrawal),
    /// Take a member out of service; probes of its health continue
    ///
    /// The state survives reloads and restarts of the proxy. The last available member of a pool is taken out of service
    /// only with --force.
    #[command(
        override_usage = usage("maintenance"),
        after_long_help = exit_codes::help("maintenance")
    )]
    Maintenance(Withdrawal),
    /// Refuse a certificate from now on, even if its CA has not revoked it
    #[command(after_long_help = exit_codes::help("block"))]
    Block(Block),
    /// Remove a block
    #[command(after_long_help = exit_codes::help("unblock"))]
    Unblock(Unblock),
    /// Show the proxies that share drains and blocks with this one, and in what they differ; make a key; take turns
    Fleet(Fleet),
    /// List the blocks, with their times and reasons
    Blocks(View),
    /// Show an agent's certificate, verdict and recent requests; without an argument, list agents
    #[command(after_long_help = exit_codes::help("who"))]
    Who(Who),
    /// List recently refused clients, with time, address, name and reason
    ///
    /// The list has refused handshakes and requests that the proxy answered with 403. A name marked as unverified is that
    /// of the refused certificate; no trusted CA vouches for it.
    Refusals(Refusals),
    /// Show the version
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the settings of the configuration file and of the agent as TOML, or with --json as an object
    ///
    /// The running proxy may use others: `config diff` shows whether it does.
    Show(ConfigShow),
    /// Show whether the files differ from what the running proxy uses; exit code 1 if they do
    Diff(View),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CrlVerb {
    /// Show the active CRLs, those that drop revocations, and the state of fetching
    Show(View),
    /// Fetch the CRLs from the CA now, and wait for the result
    Fetch(Socket),
    /// Accept that the CRLs of a CA drop revocations
    Accept(AcceptCrl),
}

#[derive(Debug, Args)]
pub(crate) struct AcceptCrl {
    /// Issuer of the CRL, as `crl show` prints it
    #[arg(value_name = "ISSUER")]
    pub(crate) issuer: String,
    /// Accept only the CRL with this number, as the alarm names it; default: the one that `status` shows now
    #[arg(long, value_name = "N", requires = "missing")]
    pub(crate) number: Option<String>,
    /// Accept only if this number of revocations is missing, as the alarm names it
    #[arg(long, value_name = "N", requires = "number")]
    pub(crate) missing: Option<u64>,
    /// Reason, for the log
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// File to write, or - for standard output; default: the file in --config
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Address of the CA server; default: the one that the agent of this machine uses
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) ca: Option<String>,
    /// Address of a compiler; can be repeated; default: the server that the agent of this machine uses
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) compiler: Vec<String>,
    /// Create a CA for the compilers' side in this directory, which must not exist: certificate and CRL for compilers,
    /// certificate and key for the proxy, and the lines for webserver.conf and auth.conf
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "force", "ca"])]
    pub(crate) compiler_ca: Option<PathBuf>,
    /// Directory below which the machine is examined, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// Take over from the proxy that runs with the same state directory, which then finishes its requests and exits
    ///
    /// If no proxy runs, this is an ordinary start. If this start fails, the running proxy continues to serve.
    #[arg(long)]
    pub(crate) hand_over: bool,
    /// Log level: error, warn, info, debug, trace, or levels by component (`info,proxy=debug`)
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Skip the tests of this host: addresses, log files, admin socket, state directory
    #[arg(long)]
    pub(crate) files_only: bool,
    /// Test with the rights of the service's account; requires root
    /// These rights do not include capabilities that the service unit grants (`AmbientCapabilities=`).
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Treat warnings as errors (exit code 78)
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
}

/// The Puppet agent whose certificate is used; overrides the configuration file.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// ssldir of the Puppet agent; overrides the configuration file
    #[arg(long, value_name = "DIR")]
    pub(crate) ssldir: Option<PathBuf>,
    /// certname of the certificate to use from the ssldir; overrides the configuration file
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
}

#[derive(Debug, Args)]
#[command(mut_arg("seconds", |watch| watch.requires("live")))]
pub(crate) struct Explain {
    /// URL or path of the request
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Method of the request
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// Certificate of the client (PEM), verified as in a TLS handshake
    #[arg(long, value_name = "FILE", conflicts_with = "certname")]
    pub(crate) cert: Option<PathBuf>,
    /// Verified certname of the client, unless it is blocked; without --cert and --certname, the client sends no
    /// certificate
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
    /// Issuer of the client's certificate (RFC 2253), for conditions on `issuer`
    #[arg(long, value_name = "DN", requires = "certname")]
    pub(crate) issuer: Option<String>,
    /// Extension of the client's certificate, for conditions on `extension`; can be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "certname", value_parser = extension)]
    pub(crate) extension: Vec<NamedValue>,
    /// Address of the client, for conditions on `source` and `share` and for pools with algorithm `source-hash`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// Server name in the client's TLS handshake, for conditions on `sni`
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Name of the listener that accepts the connection, for conditions on `listener`; without it, the only listener that
    /// terminates TLS
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
    /// Header field of the request, for example `Cookie: NAME=VALUE`; can be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<NamedValue>,
    /// ssldir of the Puppet agent; overrides the configuration file
    #[arg(long, value_name = "DIR")]
    pub(crate) ssldir: Option<PathBuf>,
    /// Ask the running proxy, with the health and the queues of its members now
    #[arg(long, conflicts_with_all = ["cert", "ssldir"])]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

/// Tests in addition to those that follow from the configuration.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Certificate of an ordinary agent (PEM), to test that members refuse it; without it, this test is skipped
    #[arg(long, value_name = "FILE", requires = "agent_key")]
    pub(crate) agent_cert: Option<PathBuf>,
    /// Private key of the certificate in --agent-cert
    #[arg(long, value_name = "FILE", requires = "agent_cert")]
    pub(crate) agent_key: Option<PathBuf>,
    /// Ports to test for plain HTTP on the members' hosts, in addition to the members' own; separate with commas
    #[arg(
        long,
        value_name = "PORT",
        value_delimiter = ',',
        default_value = "8139",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) plain_port: Vec<u16>,
    /// Ports to test for TLS on the members' hosts, in addition to the members' own; separate with commas
    #[arg(
        long,
        value_name = "PORT",
        value_delimiter = ',',
        default_value = "8140",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) tls_port: Vec<u16>,
    #[command(flatten)]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Print every setting, not only those that differ from their defaults
    #[arg(long)]
    pub(crate) defaults: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
}

#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// Admin socket of the running proxy; overrides the configuration file
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// A command that only shows something of the running proxy.
#[derive(Debug, Args)]
pub(crate) struct View {
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

/// Repeats a command that only shows something.
#[derive(Debug, Args)]
pub(crate) struct Repetition {
    /// Repeat the command at this interval (default 2 seconds) until it is interrupted
    #[arg(
        long = "watch",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub(crate) seconds: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Show what a reload would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The configuration, by its ID or the beginning of it [default: the last one before the active one]
    #[arg(long, value_name = "ID")]
    pub(crate) to: Option<String>,
    /// List the stored configurations, the newest first
    #[arg(long, conflicts_with_all = ["to", "write", "yes"])]
    pub(crate) list: bool,
    /// Replace the configuration file too, with its mode and its owner
    #[arg(long)]
    pub(crate) write: bool,
    /// Apply it without a question
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Certname of the agent
    #[arg(value_name = "CERTNAME")]
    pub(crate) certname: String,
    /// Access log in format json or combined; default: the first file of the configuration in format json, or else combined
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

#[derive(Debug, Args)]
pub(crate) struct Ui {
    /// Loopback address and port of the page; port 0 uses a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Allow changes from the page: drain members, put them back into service, block agents
    #[arg(long)]
    pub(crate) actions: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct SupportBundle {
    /// File to write, a JSON document; it must not exist
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct StatusParts {
    /// Set the exit code by the most severe alarm, as monitoring plug-ins do: 0 none, 1 warning, 2 critical, 3 unknown
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Print one line for each member, with its requests, durations and failures of the last minute
    #[arg(long)]
    pub(crate) members: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

#[derive(Debug, Args)]
pub(crate) struct LogLevel {
    /// error, warn, info, debug, trace, or levels by component (`info,proxy=debug`); without it, show the active level
    #[arg(value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

/// A certname, a serial number with its issuer, or a fingerprint.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Whom {
    /// Certname: matches every certificate of this name, of any issuer
    #[arg(value_name = "CERTNAME", conflicts_with_all = ["serial", "issuer", "fingerprint"])]
    pub(crate) certname: Option<String>,
    /// Serial number in hexadecimal; that of a CA certificate matches every certificate that the CA issued
    #[arg(
        long,
        value_name = "N",
        requires = "issuer",
        conflicts_with = "fingerprint"
    )]
    pub(crate) serial: Option<String>,
    /// Issuer of the certificate, as `proscenium status --json` prints it (RFC 2253)
    #[arg(long, value_name = "DN", requires = "serial")]
    pub(crate) issuer: Option<String>,
    /// SHA-256 fingerprint of the certificate, as `puppetserver ca list` prints it
    #[arg(long, value_name = "H")]
    pub(crate) fingerprint: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Block {
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// File of certnames, one a line, all of which are blocked with one change; `#` starts a comment
    #[arg(long, value_name = "FILE", group = "Whom", conflicts_with_all = ["certname", "serial", "issuer", "fingerprint"])]
    pub(crate) file: Option<PathBuf>,
    /// Reason, for the log and for `proscenium blocks`
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// End of the block: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration (12h, 7d)
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Unblock {
    #[command(flatten)]
    pub(crate) whom: Whom,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Certname of an agent that has connected since the start, or a certificate file (PEM)
    #[arg(value_name = "CERTNAME|FILE", conflicts_with_all = ["serial", "issuer"])]
    pub(crate) whom: Option<String>,
    /// Serial number of the certificate, in hexadecimal
    #[arg(long, value_name = "N", requires = "issuer")]
    pub(crate) serial: Option<String>,
    /// Issuer of the certificate, as `proscenium status --json` prints it (RFC 2253); without --serial, list the agents whose
    /// certificates it issued
    #[arg(long, value_name = "DN")]
    pub(crate) issuer: Option<String>,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

#[derive(Debug, Args)]
pub(crate) struct Refusals {
    /// Show only clients refused within this time, for example 30m, 12h or 7d
    #[arg(long, value_name = "DURATION", value_parser = length)]
    pub(crate) since: Option<Duration>,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Show events since this time: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration before now (30m, 12h)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) since: Option<Timestamp>,
    /// Show new events too, until the command is interrupted; with --json, one object a line
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

/// The fleet that the running proxy is part of.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Fleet {
    #[command(subcommand)]
    pub(crate) verb: Option<FleetVerb>,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) watch: Repetition,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Print a new key for the file in [fleet] key_file, which all proxies of the fleet have
    Key,
    /// Run a command that stops or restarts this proxy, when it is its turn: one proxy of the fleet at a time
    ///
    /// The command starts when all other proxies are ready and none of them has the turn. The turn ends when the command
    /// has ended and this proxy is ready again. The next proxy then gets its turn.
    #[command(after_long_help = exit_codes::help("fleet turn"))]
    Turn(FleetTurn),
}

#[derive(Debug, Args)]
pub(crate) struct FleetTurn {
    /// Longest time to wait for the turn, and for this proxy to be ready after the command; the command itself has no limit
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = length)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) socket: Socket,
    /// Command with its arguments, after `--`
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// One member, or all members on one host.
#[derive(Debug, Args)]
pub(crate) struct Members {
    /// Name of the pool, which may be left out if only one pool has the member, and address of the member, as written in
    /// the configuration, or its host if no other member is on it
    #[arg(
        value_names = ["POOL", "MEMBER"],
        num_args = 1..=2,
        required_unless_present = "host"
    )]
    pub(crate) names: Vec<String>,
    /// All members on this host, in every pool
    #[arg(long, value_name = "HOST", conflicts_with = "names")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Withdrawal {
    #[command(flatten)]
    pub(crate) members: Members,
    /// Wait until no request and no tunnel is left on the members
    #[arg(long)]
    pub(crate) wait: bool,
    /// Proxy of the fleet that is not waited for, because it is switched off, for example; can be repeated
    #[arg(long, value_name = "NAME", requires = "wait")]
    pub(crate) without: Vec<String>,
    /// Longest time to wait; the members stay out of service afterwards
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = length)]
    pub(crate) timeout: Duration,
    /// Reason, for the log and for `proscenium status`
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Time at which the members become ready by themselves: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration
    /// (30m, 12h)
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Do it even if no available member is left in a pool, so that its requests get 503
    #[arg(long)]
    pub(crate) force: bool,
}

/// The usage line, because clap would show the optional pool as required.
fn usage(verb: &str) -> String {
    format!(
        "proscenium {verb} [OPTIONS] [POOL] <MEMBER>\n       proscenium {verb} [OPTIONS] --host <HOST>"
    )
}

impl Verb {
    /// The interval of `--watch`, in seconds, if the command is to be repeated.
    pub(crate) fn watch(&self) -> Option<u64> {
        let watch = match self {
            Self::Requests(shown)
            | Self::Certificates(shown)
            | Self::Blocks(shown)
            | Self::Crl(CrlVerb::Show(shown))
            | Self::Config(ConfigVerb::Diff(shown)) => &shown.watch,
            Self::Status(parts) => &parts.watch,
            Self::Explain(explain) => &explain.watch,
            Self::Trace(trace) => &trace.watch,
            Self::Who(who) => &who.watch,
            Self::Refusals(refusals) => &refusals.watch,
            Self::Fleet(fleet) => &fleet.watch,
            _ => return None,
        };
        watch.seconds
    }
}

impl Arguments {
    /// Parses the command line of this process. Help and version are printed, with exit code 0.
    pub(crate) fn read() -> Result<Self, Failure> {
        match Self::try_parse() {
            Ok(arguments) => Ok(arguments),
            Err(error) => match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    output::print(error.render().to_string().trim_end())?;
                    Err(Failure::Printed)
                }
                _ => Err(Failure::Usage(error.render().to_string())),
            },
        }
    }
}

fn header(text: &str) -> Result<NamedValue, &'static str> {
    let pair = text.split_once(':');
    let pair = pair.map(|(name, value)| named(name.trim(), value.trim()));
    pair.filter(|pair| !pair.name.is_empty())
        .ok_or("write a header field as NAME: VALUE")
}

fn length(text: &str) -> Result<Duration, &'static str> {
    config::duration(text).ok_or("write a duration as 30m, 12h or 7d")
}

/// Parses a time, a date, or a duration before now.
fn past(text: &str) -> Result<Timestamp, &'static str> {
    let before = |length| SystemTime::now().checked_sub(length).map(Timestamp::from);
    Timestamp::parse(text)
        .or_else(|| config::duration(text).and_then(before))
        .ok_or("write a time as 2030-01-31T08:00:00Z or 2030-01-31, or a duration as 30m or 12h")
}

fn extension(text: &str) -> Result<NamedValue, &'static str> {
    let pair = text.split_once('=');
    let pair = pair.map(|(name, value)| named(name, value));
    pair.filter(|pair| !pair.name.is_empty())
        .ok_or("write an extension as NAME=VALUE")
}

fn named(name: &str, value: &str) -> NamedValue {
    NamedValue {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_and_argument_has_a_help_text() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} of {}",
                    argument.get_id(),
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn each_command_that_offers_watch_is_repeated() {
        fn offering(command: &clap::Command, words: &[&str], found: &mut Vec<Vec<String>>) {
            let mut arguments = command.get_arguments();
            if arguments.any(|argument| argument.get_long() == Some("watch")) {
                let line = words.iter().map(|word| (*word).to_owned());
                let required = command
                    .get_positionals()
                    .filter(|value| value.is_required_set());
                let required = required.map(|_| "web01".to_owned());
                let live = (command.get_name() == "explain").then(|| "--live".to_owned());
                found.push(line.chain(required).chain(live).collect());
            }
            for verb in command.get_subcommands() {
                offering(verb, &[words, &[verb.get_name()]].concat(), found);
            }
        }
        let mut found = Vec::new();
        offering(&Arguments::command(), &["proscenium"], &mut found);
        assert_eq!(found.len(), 11, "{found:?}");
        for line in found {
            let watched = [line.clone(), vec!["--watch=5".to_owned()]].concat();
            let arguments = Arguments::try_parse_from(watched).expect("parses");
            assert_eq!(arguments.verb.watch(), Some(5), "{line:?}");
            let once = Arguments::try_parse_from(&line).expect("parses");
            assert_eq!(once.verb.watch(), None, "{line:?}");
        }
    }

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let pair = |name, value| Some(named(name, value));
        for (text, expected) in [
            ("Accept: pson", pair("Accept", "pson")),
            ("Host:a:8140", pair("Host", "a:8140")),
            ("X-Empty:", pair("X-Empty", "")),
            (": value", None),
            ("Accept", None),
        ] {
            assert_eq!(header(text).ok(), expected, "{text}");
        }
    }
}
