//! docs/operating/versions.md: the versions of Puppet and OpenVox that the lab tests, from the lab's own lists.

use std::fs;

use crate::workspace;

/// The page.
pub(super) fn page() -> String {
    let read = |list: &str| {
        fs::read_to_string(workspace::root().join("tests/lab").join(list)).unwrap_or_default()
    };
    rendered(&read("versions.tsv"), &read("modes.tsv"))
}

fn rendered(versions: &str, modes: &str) -> String {
    let versions = rows(versions);
    let named = |row: &[&str]| format!("{} {} ({})", row[0], row[1], row[2]);
    let (servers, agents): (Vec<_>, Vec<_>) =
        versions.iter().partition(|row| row[0] == "Puppet Server");
    let heading: String = servers
        .iter()
        .map(|row| format!(" {} |", named(row)))
        .collect();
    let rules = " --- |".repeat(servers.len());
    let mut page = format!("{INTRODUCTION}\n| agent |{heading}\n| --- |{rules}\n");
    for row in agents {
        let when: String = row[3..]
            .iter()
            .map(|word| format!(" {} |", when(word)))
            .collect();
        page.push_str(&format!("| {} |{when}\n", named(row)));
    }
    page.push_str(&format!("{MODES}\n| what |{heading}\n| --- |{rules}\n"));
    for row in rows(modes) {
        page.push_str(&format!(
            "| {}: {} | {} | {} |\n",
            row[0],
            row[3],
            when(row[1]),
            when(row[2])
        ));
    }
    page
}

fn rows(list: &str) -> Vec<Vec<&str>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect()).collect()
}

fn when(word: &str) -> &'static str {
    match word {
        "ci" => "every change",
        "all" | "alone" => "acceptance",
        _ => "not tried",
    }
}

const INTRODUCTION: &str = "\
# Tried versions of Puppet and OpenVox

This page is generated from the lists of the project's lab by `cargo xtask reference`.

The lab (`tests/lab`) runs real Puppet servers and agents with the proxy between them.
This table shows which versions it runs together.
\"Every change\" means that the continuous integration of the project runs them, and \"acceptance\" means `cargo xtask acceptance`.

Debian sid changes, so the lab prints the version that it found there; the table has the one that was tried last.
OpenVox Server was not tried, because Debian has no package of it.
For older servers and agents, see [older-puppet.md](older-puppet.md).
";

const MODES: &str = "
## What was tried

`MEMBERS` of the lab has these names.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_and_each_mode_is_a_row_with_a_column_for_each_server() {
        let versions = "# comment\nPuppet Server\t7.9\tA\tci\t-\nPuppet Server\t8.7\tB\t-\tci\nOpenVox agent\t9.0\tC\t-\tall\n";
        let page = rendered(versions, "six\tci\tall\tsix lines\n");
        let tables: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(
            tables,
            [
                "| agent | Puppet Server 7.9 (A) | Puppet Server 8.7 (B) |",
                "| --- | --- | --- |",
                "| OpenVox agent 9.0 (C) | not tried | acceptance |",
                "| what | Puppet Server 7.9 (A) | Puppet Server 8.7 (B) |",
                "| --- | --- | --- |",
                "| six: six lines | every change | acceptance |",
            ]
        );
    }
}
