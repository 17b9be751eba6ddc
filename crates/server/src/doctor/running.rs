//! What the running proxy says of itself, where one runs.

use std::path::Path;

use admin::{Client, ClientError, Health, Status};

use super::{Check, Grade, Proof};

pub(super) async fn examine(socket: &Path, proof: &mut Proof) {
    let about = socket.display().to_string();
    let status = match Client::new(socket).status().await {
        Ok(status) => status,
        // Nothing is wrong with looking before the first start.
        Err(error @ ClientError::NotListening { .. }) => {
            let remedy = "start it, and look again";
            return proof.found(
                Check::Running,
                Grade::Note,
                &about,
                error.to_string(),
                remedy,
            );
        }
        Err(error) => {
            let remedy = "run as root or as the account of the service";
            return proof.found(
                Check::Running,
                Grade::Warning,
                &about,
                error.to_string(),
                remedy,
            );
        }
    };
    clocks(&status, proof);
    let before = proof.findings.len();
    told(&about, &status, proof);
    if proof.findings.len() == before {
        proof.passed(Check::Running, &about);
    }
}

/// No agent says what time it is; one that lives in another hour calls our certificate or the CRL over, or not valid yet.
fn clocks(status: &Status, proof: &mut Proof) {
    for listener in &status.listeners {
        let about = format!("agents at listener {}", listener.name);
        let Some(told) = &listener.distrusted else {
            proof.passed(Check::AgentClocks, &about);
            continue;
        };
        let found = format!(
            "{} handshakes ended with a client that calls our certificate over or bad; the last with {} on {} ({}): by its \
             clock our certificate or its CRL is over or not valid yet, or it asked for a name that we do not bear",
            told.times, told.client, told.at, told.alert
        );
        let remedy = "compare `date -u` there and here, and set both by NTP; where they agree, `proscenium check` shows the \
                      names of our certificates";
        proof.found(Check::AgentClocks, Grade::Warning, &about, found, remedy);
    }
}

fn told(about: &str, status: &Status, proof: &mut Proof) {
    let mut warn = |found: String, remedy: &str| {
        proof.found(Check::Running, Grade::Warning, about, found, remedy);
    };
    for alarm in &status.trust.alarms {
        warn(
            format!("the running proxy says: {alarm}"),
            "`proscenium status` tells more",
        );
    }
    if let Some(refused) = &status.materials.refused {
        warn(
            format!(
                "files on disk are not in force since {}: {}",
                refused.since,
                refused.report.trim()
            ),
            "correct them; they are taken by themselves, or by `proscenium reload`",
        );
    }
    if let Some(why) = &status.state.unusable {
        warn(
            format!("what it learns does not outlast a restart: {why}"),
            "give its account a directory of its own there, mode 0700",
        );
    }
    if let Some(off) = &status.renewal.off {
        warn(
            format!(
                "no renewal is passed on since {}: {}",
                off.since,
                off.why.trim()
            ),
            "mend the CA server first (docs: renewal of agents' certificates), then run `proscenium reload`",
        );
    }
    for pool in &status.pools {
        for member in pool
            .members
            .iter()
            .filter(|member| member.health == Health::Down)
        {
            warn(
                format!("it holds {} of pool {} for down", member.address, pool.name),
                "its log says what the last probe found",
            );
        }
    }
}
