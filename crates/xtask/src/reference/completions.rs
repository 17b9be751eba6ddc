//! Completions for bash, zsh and fish, from the declarations of the command line.

use clap::{Arg, Command, ValueHint, builder::PossibleValuesParser};
use clap_complete::{Generator, Shell, generate};

/// Values to offer where the declaration accepts more than a list of words, by the name of the value.
const SUGGESTED: &[(&str, &[&str])] = &[
    ("LEVEL", &["error", "warn", "info", "debug", "trace"]),
    ("METHOD", &["GET", "HEAD", "POST", "PUT", "DELETE"]),
];

/// Each script, with the file name that its shell expects.
pub(super) fn scripts() -> Vec<(String, String)> {
    let mut command = with_hints(proscenium::command());
    let shells = [Shell::Bash, Shell::Zsh, Shell::Fish].into_iter();
    shells
        .map(|shell| {
            let mut script = Vec::new();
            generate(shell, &mut command, "proscenium", &mut script);
            let script = String::from_utf8(script).expect("clap generates UTF-8");
            (shell.file_name("proscenium"), script)
        })
        .collect()
}

fn with_hints(command: Command) -> Command {
    command.mut_args(with_hint).mut_subcommands(with_hints)
}

/// Restricts file names to arguments whose value is a file.
fn with_hint(argument: Arg) -> Arg {
    let names = argument.get_value_names().unwrap_or_default();
    let name = match names.first() {
        Some(name) if argument.get_action().takes_values() => name.to_string(),
        _ => return argument,
    };
    if let Some((_, values)) = SUGGESTED.iter().find(|(suggested, _)| *suggested == name) {
        return argument.value_parser(PossibleValuesParser::new(*values));
    }
    argument.value_hint(match &*name {
        "FILE" | "PATH" | "CERTNAME|FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Other,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn bash_completes_verbs_options_words_and_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("web01.pem"), "").unwrap();
        let file = format!("{}/web", directory.path().display());
        let whole_file = format!("{file}01.pem");
        for (words, expected) in [
            (&["che"][..], &["check"][..]),
            (&["lo"], &["log-level"]),
            (&["crl", "f"], &["fetch"]),
            (&["check", "--fi"], &["--files-only"]),
            (&["check", "--config", &file], &[&whole_file]),
            (&["run", "--log", "de"], &["debug"]),
            (&["log-level", "w"], &["warn"]),
            (&["explain", "--method", "P"], &["POST", "PUT"]),
            (&["check", "--user", "no-such"], &["no-such"]),
        ] {
            assert_eq!(completed(words), expected, "{words:?}");
        }
    }

    /// The completions that bash offers for a command line whose last word is incomplete.
    fn completed(words: &[&str]) -> Vec<String> {
        let (_, script) = scripts().swap_remove(0);
        // bash calls the function with the command, the current word and the word before it. `compopt` fails outside
        // of a completion.
        let call = r#"compopt() { :; }
            COMP_WORDS=(proscenium "$@"); COMP_CWORD=$#
            _proscenium proscenium "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let output = Command::new("bash")
            .args(["-c", &format!("{script}\n{call}"), "bash"])
            .args(words)
            .output()
            .expect("bash starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
        printed.lines().map(str::to_owned).collect()
    }
}
