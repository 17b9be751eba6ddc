//! `cargo xtask tunnel`: passed-through connections that are nearly silent for minutes.
//!
//! One sends a byte every five minutes, one is silent until the end; both must be open then.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::{Ca, Proxy};

use crate::workspace;

/// Durations.
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes for which the tunnels stay open
    #[arg(long, default_value_t = 16.0)]
    minutes: f64,
    /// Minutes between two bytes
    #[arg(long, default_value_t = 5.0)]
    every: f64,
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
}

/// Opens the tunnels and waits. A closed tunnel is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    let broker = echo()?;
    let ca = Ca::named("tunnel");
    let proxy = Proxy::new(&ca, binary)
        .with(&format!(
            "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
             [pools.brokers]\nmembers = [{broker:?}]\ntrusted_headers_off = true\n\
             [pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n"
        ))
        .start();
    proxy.wait_for_members(&["brokers"]);
    let status = proxy.status();
    let listeners = status["listeners"].as_array().context("no listeners")?;
    let mut listeners = listeners.iter();
    let pcp = listeners.find(|listener| listener["name"] == "pcp");
    let address = pcp
        .and_then(|listener| listener["address"].as_str())
        .context("no listener")?;
    let (mut spoken, mut silent) = (TcpStream::connect(address)?, TcpStream::connect(address)?);
    echoed(&mut silent).context("the silent tunnel does not open")?;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let mut bytes = 0;
    loop {
        echoed(&mut spoken)
            .with_context(|| format!("the tunnel was closed after {bytes} bytes"))?;
        bytes += 1;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        println!("{bytes} bytes so far, {:.0} s left", left.as_secs_f64());
        thread::sleep(left.min(Duration::from_secs_f64(options.every * 60.0)));
    }
    echoed(&mut silent).context("the silent tunnel was closed")?;
    for mut tunnel in [spoken, silent] {
        tunnel.shutdown(Shutdown::Write)?;
        ensure!(tunnel.read(&mut [0])? == 0, "no end in order");
    }
    for record in proxy.wait_for_records(2) {
        ensure!(record["reason"].is_null(), "{record}");
    }
    println!("Both tunnels were open for {} minutes.", options.minutes);
    Ok(())
}

fn echoed(tunnel: &mut TcpStream) -> Result<()> {
    tunnel.set_read_timeout(Some(Duration::from_secs(10)))?;
    tunnel.write_all(b"x")?;
    Ok(tunnel.read_exact(&mut [0])?)
}

/// A member that echoes.
fn echo() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    Ok(address)
}
