//! The command line, as typed.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, error::ErrorKind};

use crate::{exit_codes, failure::Failure, output, version};

/// A TLS-terminating reverse proxy in front of Puppet servers.
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
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve until SIGTERM; SIGHUP reads configuration, certificates and CRLs again
    #[command(after_long_help = exit_codes::help("run"))]
    Run(Run),
    /// Test configuration, certificates, CRLs and host as a start would, and print every problem
    ///
    /// Addresses are bound without listening, and nothing is created. What the running proxy holds is accepted.
    #[command(after_long_help = exit_codes::help("check"))]
    Check(Check),
    /// Show where a request would go, and why: path rule, class, route, access, pool, members
    ///
    /// No proxy has to run; blocks are read from the state directory.
    #[command(after_long_help = exit_codes::help("explain"))]
    Explain(Explain),
    /// Prove the deployment: files, certificates, lists, every member, and what members do with forged identities
    ///
    /// Nothing is changed anywhere, and no proxy has to run.
    #[command(after_long_help = exit_codes::help("doctor"))]
    Doctor(Doctor),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Have the running proxy read configuration, certificates and CRLs again, and wait for the outcome
    Reload(Socket),
    /// Have the running proxy open its log files again, after a rotation has renamed them
    ///
    /// Nothing else is read or changed. SIGUSR1 does the same.
    #[command(name = "reopen-logs")]
    ReopenLogs(Socket),
    /// Show which events the running proxy logs, or change it until the proxy ends
    ///
    /// A restart goes back to `run --log`.
    #[command(name = "log-level")]
    LogLevel(LogLevel),
    /// Tell how the running proxy does: generation, listeners, pools, CRLs
    Status(Status),
    /// Look at the CRLs in force, fetch them from the CA, or accept one that was refused
    #[command(subcommand)]
    Crl(CrlVerb),
    /// Let a member have requests again
    Ready(Member),
    /// Let a member finish what it has and give it no more
    Drain(Member),
    /// Take a member out: no requests, no probes
    Maintenance(Member),
    /// Keep a certificate out from now on, whatever its CA's list says
    Block(Block),
    /// Lift a block
    Unblock(Unblock),
    /// Tell who is blocked, since when and why
    Blocks(Blocks),
    /// Tell what is known of an agent or a certificate and what would be decided now; of nobody in particular: who was seen
    Who(Who),
    /// List the clients that the proxy refused recently: when, from where, under which name, and why
    ///
    /// Handshakes that the proxy refused, and requests that it answered with 403. A name marked as unverified is the one
    /// that the refused certificate says; no trusted CA vouches for it.
    Refusals(Refusals),
    /// Tell the version
    Version(Version),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the configuration in effect as TOML
    Show(ConfigShow),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CrlVerb {
    /// Tell the CRLs in force, how they are fetched, and which ones are refused
    Show(Status),
    /// Have the running proxy ask the CA now, and wait for the outcome
    Fetch(Socket),
    /// Put a refused CRL in force, though it takes something back
    Accept(AcceptCrl),
}

#[derive(Debug, Args)]
pub(crate) struct AcceptCrl {
    /// Issuer of the CRL, as `crl show` spells it
    #[arg(value_name = "ISSUER")]
    pub(crate) issuer: String,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// Which events are told: error, warn, info, debug, trace, or by part (`info,proxy=debug`)
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Leave out the tests of the host: addresses, log files, admin socket, state directory
    #[arg(long)]
    pub(crate) files_only: bool,
    /// Test with the rights of this account, that of the service; needs root
    ///
    /// Capabilities of the service unit (`AmbientCapabilities=`) are not part of an account's rights.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Fail on warnings too, with exit code 78
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the result, problems and facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
}

/// The Puppet agent whose certificate is used; over what the file says.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// The Puppet agent's ssldir, in place of the file's
    #[arg(long, value_name = "DIR")]
    pub(crate) ssldir: Option<PathBuf>,
    /// The certname whose certificate in the ssldir is used, in place of the file's
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// URL or path of the request
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Method of the request
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// The client shows this certificate (PEM), judged as at a handshake
    #[arg(long, value_name = "FILE", conflicts_with = "certname")]
    pub(crate) cert: Option<PathBuf>,
    /// The client is verified under this certname, unless that is blocked; without --cert and --certname it shows no
    /// certificate
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
    /// Who signed that certname's certificate (RFC 2253), for access rules on `issuer`
    #[arg(long, value_name = "DN", requires = "certname")]
    pub(crate) issuer: Option<String>,
    /// An extension of that certname's certificate, for access rules on `extension`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "certname", value_parser = extension)]
    pub(crate) extension: Vec<(String, String)>,
    /// The client's address, for conditions on `source` and for pools that pick members by it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// The server name that the client asked for in the TLS handshake, for conditions on `sni`
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// A header field of the request, `Cookie: NAME=VALUE` among them; may be given several times
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    /// The Puppet agent's ssldir, in place of the file's
    #[arg(long, value_name = "DIR")]
    pub(crate) ssldir: Option<PathBuf>,
}

/// What is proved beside what the configuration says.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Certificate of an ordinary agent (PEM): members must refuse it; without one that is not proved
    #[arg(long, value_name = "FILE", requires = "agent_key")]
    pub(crate) agent_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "agent_cert")]
    pub(crate) agent_key: Option<PathBuf>,
    /// A port where members' hosts may have left plain HTTP open, beside that of the member; several with commas
    #[arg(
        long,
        value_name = "PORT",
        value_delimiter = ',',
        default_value = "8139",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) plain_port: Vec<u16>,
    /// A port where members' hosts may be open over TLS, beside that of the member; several with commas
    #[arg(
        long,
        value_name = "PORT",
        value_delimiter = ',',
        default_value = "8140",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) tls_port: Vec<u16>,
    /// Findings and what passed as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Every setting, not only those that differ from their defaults
    #[arg(long)]
    pub(crate) defaults: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
}

#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// Admin socket of the running proxy, in place of the one that the configuration file names
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LogLevel {
    /// error, warn, info, debug, trace, or levels by part (`info,proxy=debug`); without it, show the active level
    #[arg(value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The whole answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

/// One of a certname, a serial with its issuer, a fingerprint.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Whom {
    /// Every certificate of this name, whoever issued it
    #[arg(value_name = "CERTNAME", conflicts_with_all = ["serial", "issuer", "fingerprint"])]
    pub(crate) certname: Option<String>,
    /// The certificate with this serial, in hexadecimal; of a CA: all that it issued
    #[arg(
        long,
        value_name = "N",
        requires = "issuer",
        conflicts_with = "fingerprint"
    )]
    pub(crate) serial: Option<String>,
    /// Who issued that certificate, as `proscenium status --json` spells CAs (RFC 2253)
    #[arg(long, value_name = "DN", requires = "serial")]
    pub(crate) issuer: Option<String>,
    /// The certificate with this SHA-256, as `puppetserver ca list` tells it
    #[arg(long, value_name = "H")]
    pub(crate) fingerprint: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Block {
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// Why: for the log, and for who looks at the list later
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// When it ends by itself: 2030-01-31T08:00:00Z, 2030-01-31, or how long, as 12h or 7d
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
pub(crate) struct Blocks {
    /// The list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Who {
    /// An agent that was seen since the start, or a file with a certificate (PEM)
    #[arg(value_name = "CERTNAME|FILE", conflicts_with_all = ["serial", "issuer"])]
    pub(crate) whom: Option<String>,
    /// The certificate with this serial, in hexadecimal
    #[arg(long, value_name = "N", requires = "issuer")]
    pub(crate) serial: Option<String>,
    /// Who issued that certificate, as `proscenium status --json` spells CAs (RFC 2253)
    #[arg(long, value_name = "DN", requires = "serial")]
    pub(crate) issuer: Option<String>,
    /// The answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print the version as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Refusals {
    /// Only clients that were refused within this time: 30m, 12h or 7d
    #[arg(long, value_name = "DURATION", value_parser = length)]
    pub(crate) since: Option<Duration>,
    /// The answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

#[derive(Debug, Args)]
pub(crate) struct Member {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// Address of the member, as the configuration spells it
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) socket: Socket,
}

impl Arguments {
    /// The command line of this process. Help and version are printed and end it with 0.
    pub(crate) fn read() -> Result<Self, Failure> {
        match Self::try_parse() {
            Ok(arguments) => Ok(arguments),
            Err(error) => match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    output::say(error.render().to_string().trim_end())?;
                    Err(Failure::Told)
                }
                _ => Err(Failure::Usage(error.render().to_string())),
            },
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("a header field is spelled NAME: VALUE".to_owned()),
    }
}

fn length(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "a duration is spelled 30m, 12h or 7d".to_owned())
}

fn extension(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("an extension is spelled NAME=VALUE".to_owned()),
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
    fn every_argument_and_verb_says_what_it_does() {
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
    fn a_header_is_a_name_and_a_value() {
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
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
