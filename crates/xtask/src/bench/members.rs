//! The servers behind the proxies: they answer 403 to a request that brings no identity, so that a proxy which
//! skips its work is seen.

use std::{net::SocketAddr, thread};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime,
};

/// A CA and two compilers, on a thread of their own until the program ends.
pub(super) struct Members {
    pub(super) ca: SocketAddr,
    pub(super) compilers: [SocketAddr; 2],
}

impl Members {
    pub(super) fn start() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let listeners = runtime
            .block_on(async { anyhow::Ok([bind().await?, bind().await?, bind().await?]) })?;
        let [ca, first, second] = [0, 1, 2].map(|n: usize| listeners[n].local_addr());
        let members = Self {
            ca: ca?,
            compilers: [first?, second?],
        };
        thread::spawn(move || {
            runtime.block_on(async {
                let [ca, first, second] = listeners;
                tokio::join!(serve(ca), serve(first), serve(second))
            })
        });
        Ok(members)
    }
}

async fn bind() -> Result<TcpListener> {
    Ok(TcpListener::bind("127.0.0.1:0").await?)
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(answer(stream));
    }
}

/// Requests without bodies, one after the other, until the proxy goes.
async fn answer(mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX);
    loop {
        while let Some(end) = head_end(&buffer) {
            let answer = if identified(&buffer[..end]) {
                GOOD
            } else {
                REFUSED
            };
            buffer.drain(..end);
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        if buffer.len() > HEAD_BYTES_MAX || !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|start| start + 4)
}

fn identified(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.contains("\r\nx-client-verify: success\r\n") && head.contains("\r\nx-client-dn: ")
}

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Puppet-Version: 8.0.0\r\nContent-Length: 120\r\n\r\n\
    {\"path\":\"/etc/puppetlabs/code/modules/ntp/files/ntp.conf\",\"links\":\"manage\",\"owner\":0,\"group\":0,\"mode\":420,\"type\":\"file\"}";
const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
const HEAD_BYTES_MAX: usize = 64 << 10;
