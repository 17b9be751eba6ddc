//! Completions for bash, zsh and fish, from the declarations of the command line.
//!
//! Names of members, pools and blocks come from the running proxy: each script calls `proscenium __complete`.

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
            (shell.file_name("proscenium"), with_names(shell, &script))
        })
        .collect()
}

/// Adds names that the running proxy knows to a script.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let (functions, registration) = script
                .split_once("\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4")
                .expect("the script registers its function");
            let registration =
                registration.replace("-F _proscenium ", "-F _proscenium_with_names ");
            format!(
                "{functions}\n{BASH_NAMES}\nif [[ \"${{BASH_VERSINFO[0]}}\" -eq 4{registration}"
            )
        }
        Shell::Zsh => {
            let mut verb = "";
            let lines = script.lines().map(|line| {
                if let Some(name) = line
                    .strip_prefix('(')
                    .and_then(|name| name.strip_suffix(')'))
                {
                    verb = name;
                }
                zsh_line(verb, line)
            });
            let script = lines.collect::<Vec<_>>().join("\n");
            let (functions, registration) = script
                .split_once("\nif [ \"$funcstack[1]\"")
                .expect("the script registers its function");
            format!("{functions}\n{ZSH_NAMES}\nif [ \"$funcstack[1]\"{registration}\n")
        }
        _ => format!("{script}{FISH_NAMES}"),
    }
}

/// A line of the zsh script, with the names that complete its value.
fn zsh_line(verb: &str, line: &str) -> String {
    let is_of = |prefix: &str| line.starts_with(prefix);
    let kind = match verb {
        "ready" | "drain" | "maintenance" if is_of("'*::names ") => "members",
        "ready" | "drain" | "maintenance" if is_of("'()--host=") => "hosts",
        "unblock" if is_of("'::certname ") => "blocked",
        _ => return line.to_owned(),
    };
    let line = line.strip_suffix("' \\").expect("the action is last");
    // An action that starts with a space is called without further arguments.
    format!("{line} _proscenium_names {kind}' \\")
}

/// The words of an address are separate for bash, because a colon separates words: the whole word is read from the line, and
/// only what follows its last colon is replaced.
const BASH_NAMES: &str = r#"_proscenium_names() {
    local i value where=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            --config|--socket)
                value="${COMP_WORDS[i + 1]}"
                [[ "${value}" == "=" ]] && value="${COMP_WORDS[i + 2]}"
                where+=("${COMP_WORDS[i]}" "${value}")
                ;;
        esac
    done
    proscenium __complete "$1" "${where[@]}" 2>/dev/null
}

_proscenium_with_names() {
    _proscenium "$@"
    local word kind="" line="${COMP_LINE:0:COMP_POINT}" whole before
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "${word}" in
            ready|drain|maintenance) kind="members"; break ;;
            unblock) kind="blocked"; break ;;
        esac
    done
    whole="${line##* }"
    case "$3" in
        --host) [[ "${kind}" == "members" ]] && kind="hosts"; COMPREPLY=() ;;
        --wait|--force|--json) ;;
        -*) return 0 ;;
    esac
    if [[ -z "${kind}" || "${whole}" == -* ]]; then
        return 0
    fi
    before="${whole%"${whole##*:}"}"
    COMPREPLY+=( $(compgen -W "$(_proscenium_names "${kind}")" -- "${whole}") )
    COMPREPLY=( "${COMPREPLY[@]#"${before}"}" )
}
"#;

const ZSH_NAMES: &str = r#"_proscenium_names() {
    local -a where names
    [[ -n "${opt_args[--config]-}" ]] && where+=(--config "${(Q)opt_args[--config]}")
    [[ -n "${opt_args[--socket]-}" ]] && where+=(--socket "${(Q)opt_args[--socket]}")
    names=(${(f)"$(proscenium __complete $1 $where 2>/dev/null)"})
    compadd -a names
}
"#;

const FISH_NAMES: &str = r#"
function __fish_proscenium_names -a kind
    set -l words (commandline -opc)
    set -l where
    argparse -i config= socket= -- $words 2>/dev/null
    set -q _flag_config; and set -a where --config $_flag_config
    set -q _flag_socket; and set -a where --socket $_flag_socket
    proscenium __complete $kind $where 2>/dev/null
end

complete -c proscenium -n "__fish_proscenium_using_subcommand ready drain maintenance" -f -a "(__fish_proscenium_names members)"
complete -c proscenium -n "__fish_proscenium_using_subcommand ready drain maintenance" -l host -r -f -a "(__fish_proscenium_names hosts)"
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -f -a "(__fish_proscenium_names blocked)"
"#;

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

    #[test]
    fn each_script_asks_for_the_names_of_its_verbs() {
        let scripts = scripts();
        for (index, expected, times) in [
            (0, "complete -F _proscenium_with_names ", 2),
            (1, ": _proscenium_names members' ", 3),
            (1, ": _proscenium_names blocked' ", 1),
            (1, ":HOST: _proscenium_names hosts' ", 3),
            (2, "(__fish_proscenium_names blocked)", 1),
        ] {
            let (name, script) = &scripts[index];
            assert_eq!(
                script.matches(expected).count(),
                times,
                "{name}: {expected}"
            );
            assert!(
                script.ends_with('\n') && !script.ends_with("\n\n"),
                "{name}"
            );
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
