//! Connections that are passed through: the CPU time for their bytes, and the memory of idle ones.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
};

use anyhow::{Context, Result, anyhow};

use super::{cores::Cores, cpu, members, peers::Peer};

/// Microseconds of CPU for 10 MB from a member to a client.
pub(super) fn download_cost(peer: &Peer, cores: &Cores) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let address = peer.passthrough();
    download(address, 1)?;
    let before = cpu::run_time(proxy.id());
    let downloads: Vec<_> = (0..CONNECTIONS)
        .map(|_| thread::spawn(move || download(address, DOWNLOADS)))
        .collect();
    for connection in downloads {
        let outcome = connection.join();
        outcome.map_err(|_| anyhow!("a connection broke off"))??;
    }
    let spent = cpu::run_time(proxy.id()).saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / (CONNECTIONS * DOWNLOADS) as f64)
}

/// KiB of resident memory for each idle connection.
pub(super) fn idle_kib(peer: &Peer, cores: &Cores) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let address = peer.passthrough();
    download(address, 1)?;
    let before = cpu::resident_kib(proxy.id());
    let open: Result<Vec<_>, _> = (0..IDLE).map(|_| TcpStream::connect(address)).collect();
    let _open = open.context("the limit of open files is too low")?;
    // The proxy handles connections in order. When this one transfers bytes, each earlier one has its connection to the
    // member.
    download(address, 1)?;
    let grown = cpu::resident_kib(proxy.id()).saturating_sub(before);
    Ok(grown as f64 / IDLE as f64)
}

/// Requests a file this number of times on one connection, and reads the responses. The proxy only passes bytes
/// through, so the client itself sends the identity that members require.
fn download(address: SocketAddr, count: usize) -> Result<()> {
    let mut connection = TcpStream::connect(address)?;
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..count {
        connection.write_all(REQUEST)?;
        let mut left = members::FILE.len();
        while left > 0 {
            let piece = left.min(buffer.len());
            connection
                .read_exact(&mut buffer[..piece])
                .with_context(|| format!("{left} bytes are missing"))?;
            left -= piece;
        }
    }
    Ok(())
}

const REQUEST: &[u8] =
    b"GET /file_content/large HTTP/1.1\r\nX-Client-Verify: SUCCESS\r\nX-Client-DN: CN=client\r\n\r\n";
/// Connections that transfer bytes at the same time.
const CONNECTIONS: usize = 4;
const DOWNLOADS: usize = 50;
const IDLE: usize = 1_000;
