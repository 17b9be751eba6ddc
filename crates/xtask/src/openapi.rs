//! `cargo xtask openapi`: schemathesis sends requests to the admin API of a running proxy, generated from the API's own
//! description.

use std::{
    fs, io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
    thread,
};

use anyhow::Result;
use testkit::{Estate, EstateBuilder, Proxy};

use crate::{pinned_programs, workspace};

/// The version that is installed.
const SCHEMATHESIS: &str = "4.32.5";
/// Number of requests for each operation and phase.
const EXAMPLES_MAX: &str = "40";
/// The endpoint whose response does not end.
const EVENTS: &str = "/v1/events";

/// The options of `cargo xtask openapi`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seed of the generated requests; the report prints it
    #[arg(long, default_value = "1")]
    seed: String,
}

/// Fails if a response contradicts the description, or if the proxy answers with a server error or ends.
pub(crate) fn run(options: &Options) -> Result<()> {
    let program = pinned_programs::python(&[("schemathesis", SCHEMATHESIS)])?.join("schemathesis");
    let proxy = workspace::build_proscenium(false)?;
    let estate: Estate = EstateBuilder::new(move |ca| Proxy::new(ca, &proxy)).start();
    let relay = relay(&estate.proxy.admin_socket())?;
    let settings = workspace::target().join("schemathesis.toml");
    fs::write(&settings, SETTINGS)?;
    let url = format!("http://{relay}");
    workspace::run(
        Command::new(program)
            .arg("--config-file")
            .arg(&settings)
            .args(["run", &format!("{url}/v1/openapi.json"), "--url", &url])
            .args(["--exclude-path", EVENTS, "--seed", &options.seed])
            .args(["--max-examples", EXAMPLES_MAX, "--no-color"]),
    )?;
    let status = estate.proxy.status();
    anyhow::ensure!(
        status["phase"] == "serving",
        "the proxy no longer serves: {status}"
    );
    Ok(())
}

/// A loopback address for clients that cannot use Unix sockets. It is valid until the process ends.
fn relay(socket: &Path) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let socket = socket.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let socket = socket.clone();
            // When the client closes its connection, both directions end.
            thread::spawn(move || {
                UnixStream::connect(socket).and_then(|proxy| copy(&client, &proxy))
            });
        }
    });
    Ok(address)
}

fn copy(client: &TcpStream, proxy: &UnixStream) -> io::Result<()> {
    let (mut from_client, mut to_proxy) = (client.try_clone()?, proxy.try_clone()?);
    thread::spawn(move || {
        let copied = io::copy(&mut from_client, &mut to_proxy);
        let _ = to_proxy.shutdown(Shutdown::Write);
        copied
    });
    let (mut from_proxy, mut to_client) = (proxy, client);
    io::copy(&mut from_proxy, &mut to_client)?;
    client.shutdown(Shutdown::Both)
}

/// A valid document can name something that does not exist or is not possible now; the API then answers 404, 409, 412
/// or 422. The API verifies the condition of a request first, so an invalid request can get 412.
const SETTINGS: &str = r#"
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "412", "422", "502"]
[checks.negative_data_rejection]
expected-statuses = ["400", "404", "405", "409", "412", "413", "422"]
"#;
