//! CPU time of a small request over HTTP/2. The client is h2load, which presents no certificate.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{cores::Cores, cpu, peers::Peer, requests};

/// Microseconds of CPU per successful response.
pub(super) fn measure(peer: &Peer, cores: &Cores) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let url = format!("https://{}{}", proxy.address(), requests::anonymous_path());
    load(&url, WARM_UP)?;
    let before = cpu::run_time(proxy.id());
    load(&url, REQUESTS)?;
    let spent = cpu::run_time(proxy.id()).saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / REQUESTS as f64)
}

/// Runs h2load with eight connections and 16 streams on each.
fn load(url: &str, requests: u64) -> Result<()> {
    let output = Command::new("h2load")
        .args([
            "-c",
            "8",
            "-m",
            "16",
            "-t",
            "1",
            "-n",
            &requests.to_string(),
        ])
        .arg(url)
        .output()
        .context("h2load does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains("Application protocol: h2\n"),
        "h2load did not use HTTP/2:\n{text}"
    );
    ensure!(
        good_answers(&text) == Some(requests),
        "not all answers were 2xx:\n{text}"
    );
    Ok(())
}

/// Parses the line `status codes: 60000 2xx, 0 3xx, 0 4xx, 0 5xx`.
fn good_answers(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("status codes: "))?;
    line.split_once(" 2xx")?.0.parse().ok()
}

const WARM_UP: u64 = 2_000;
const REQUESTS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_with_status_2xx_are_counted() {
        let text = "requests: 9 total\nstatus codes: 7 2xx, 0 3xx, 2 4xx, 0 5xx\ntraffic: 1KB\n";
        assert_eq!(good_answers(text), Some(7));
        assert_eq!(good_answers("requests: 9 total\n"), None);
    }
}
