//! Names for shell completion. The scripts in packaging/completions call the program for members, pools and blocks.

use std::{collections::BTreeSet, ffi::OsString, time::Duration};

use admin::{AdminClient, AdminClientError, PoolStatus};
use clap::Parser;
use tokio::time::timeout;

use crate::{
    arguments::{Arguments, Verb},
    ask::{client, wait},
    output,
};

/// The first argument of the call. It is not a verb, so help texts and manual pages do not have it.
const CALL: &str = "__complete";
/// Time allowed for the answer of the proxy, because a shell waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of names.
const NAMES_MAX: usize = 2_000;

/// Prints the names of a kind if a completion script calls the program; otherwise returns false. Without an answer of the
/// proxy, nothing is printed.
pub(crate) fn answer(words: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<_> = words.collect();
    let [call, kind, options @ ..] = &*words else {
        return false;
    };
    if call != CALL {
        return false;
    }
    let names = kind.to_str().and_then(|kind| names(kind, options));
    if let Some(names) = names.filter(|names| !names.is_empty()) {
        // A shell that has gone away needs no names.
        let _ = output::print(&names.into_iter().collect::<Vec<_>>().join("\n"));
    }
    true
}

/// The names of a kind. The options are those of any command that queries a running proxy.
fn names(kind: &str, options: &[OsString]) -> Option<BTreeSet<String>> {
    let line = ["proscenium", "blocks"].map(OsString::from).into_iter();
    let arguments = Arguments::try_parse_from(line.chain(options.iter().cloned())).ok()?;
    let Verb::Blocks(view) = &arguments.verb else {
        return None;
    };
    let client = client(&arguments, &view.socket).ok()?;
    let answer = wait(async { Ok(timeout(TIMEOUT, known(kind, &client)).await) });
    let names = answer.ok()?.ok()?.ok()?;
    let names = names.into_iter().filter(|name| is_plain(name));
    Some(names.take(NAMES_MAX).collect())
}

async fn known(kind: &str, client: &AdminClient) -> Result<Vec<String>, AdminClientError> {
    let pools = async || Ok::<_, AdminClientError>(client.status().await?.pools);
    let addresses = |pools: &[PoolStatus]| -> Vec<String> {
        let members = pools.iter().flat_map(|pool| &pool.members);
        members.map(|member| member.address.clone()).collect()
    };
    Ok(match kind {
        "members" => {
            let pools = pools().await?;
            let addresses = addresses(&pools).into_iter();
            pools
                .into_iter()
                .map(|pool| pool.name)
                .chain(addresses)
                .collect()
        }
        "hosts" => {
            let addresses = addresses(&pools().await?).into_iter();
            let hosts =
                addresses.filter_map(|address| Some(address.rsplit_once(':')?.0.to_owned()));
            hosts.collect()
        }
        "blocked" => {
            let blocks = client.blocks().await?.into_iter();
            blocks.filter_map(|block| block.blocked.certname).collect()
        }
        _ => Vec::new(),
    })
}

/// Whether a name has no character with a meaning in a shell. Other names are not offered.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_character_of_a_shell_is_not_offered() {
        for (name, offered) in [
            ("c1.example.com:8140", true),
            ("unix:/run/p.sock", true),
            ("web01_a-b@c", true),
            ("[2001:db8::1]:8140", false),
            ("a b", false),
            ("$(reboot)", false),
            ("`x`", false),
            ("a;b", false),
            ("a*", false),
            ("-x", false),
            ("ä", false),
            ("", false),
        ] {
            assert_eq!(is_plain(name), offered, "{name}");
        }
    }

    #[test]
    fn another_command_line_is_not_a_call() {
        for line in [
            &[][..],
            &["status"],
            &["status", "members"],
            &["__complete"],
        ] {
            assert!(!answer(line.iter().map(OsString::from)), "{line:?}");
        }
    }
}
