//! `--keep`: leaves the estate running, prints commands to try, and prints each request that arrives behind the proxy.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use testkit::{Recorded, StandIn, TestCredential};

use super::{estate::DemoEstate, story::identity};

/// Serves until Ctrl-C.
pub(crate) fn until_interrupted(estate: &DemoEstate) -> Result<()> {
    // The last act killed at least one compiler.
    estate.compilers.iter().for_each(StandIn::restart);
    estate.proxy.wait_for_members(&["ca", "compilers"]);
    estate.members().for_each(StandIn::forget);
    estate.ca_server.autosign();
    println!("{}", lines_to_try(estate));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let mut printed = BTreeMap::new();
        loop {
            tokio::select! {
                end = &mut interrupted => {
                    print_new_requests(estate, &mut printed);
                    return Ok(end?);
                }
                () = tokio::time::sleep(INTERVAL) => print_new_requests(estate, &mut printed),
            }
        }
    })
}

/// Writes PEM files next to the proxy's configuration.
pub(crate) fn write_credentials(estate: &DemoEstate, agents: &[&TestCredential]) {
    estate.proxy.write("ca.pem", &estate.ca.bundle_pem(), 0o644);
    for agent in agents {
        let name = &agent.certname;
        estate
            .proxy
            .write(&format!("{name}.pem"), &agent.cert_pem, 0o644);
        estate
            .proxy
            .write(&format!("{name}.key"), &agent.key_pem, 0o600);
    }
}

fn lines_to_try(estate: &DemoEstate) -> String {
    let directory = estate.proxy.directory().display();
    let port = estate.proxy.address().port();
    let curl = format!("curl -sS --resolve puppet:{port}:127.0.0.1 --cacert ca.pem");
    let web01 = format!("{curl} --cert web01.pem --key web01.key");
    let web02 = format!("{curl} --cert web02.pem --key web02.key");
    let url = format!("https://puppet:{port}");
    format!(
        r#"
Everything keeps running until Ctrl-C. In another terminal:

  cd {directory}

Request a catalog: as web01, with a forged name, without a certificate, with the revoked certificate:
  {web01} '{url}/puppet/v3/catalog/web01?environment=production' -d 'facts=%7B%7D'
  {web01} '{url}/puppet/v3/catalog/web01?environment=production' -H 'X-Client-DN: CN=admin'
  {curl} '{url}/puppet/v3/catalog/web01?environment=production'
  {web02} '{url}/puppet/v3/catalog/web02?environment=production'

Enrol an agent; the CA now signs every request:
  openssl req -new -newkey rsa:2048 -nodes -subj /CN=web03 -keyout web03.key -out web03.csr
  {curl} '{url}/puppet-ca/v1/certificate_request/web03' -H 'Content-Type: text/plain' -T web03.csr
  {curl} '{url}/puppet-ca/v1/certificate/web03' -o web03.pem

Read the proxy's status and metrics:
  curl -sS --unix-socket admin.sock http://localhost/v1/status
  curl -sS --unix-socket admin.sock http://localhost/metrics

What arrives behind the proxy:"#
    )
}

/// Prints the requests that arrived since the last call.
fn print_new_requests(estate: &DemoEstate, printed: &mut BTreeMap<String, usize>) {
    for member in estate.members() {
        let requests = member.requests();
        let count = printed.entry(member.name().to_owned()).or_default();
        // A request that is still arriving is printed when it is complete.
        for request in requests.iter().skip(*count).take_while(|r| r.complete) {
            *count += 1;
            println!("  {}", line(request));
        }
    }
}

fn line(request: &Recorded) -> String {
    format!(
        "{:3} {:4} {}  {}",
        request.member,
        request.method,
        request.path(),
        identity(request)
    )
}

/// Polling interval, short enough to seem immediate.
const INTERVAL: Duration = Duration::from_millis(100);
