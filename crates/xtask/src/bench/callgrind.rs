//! Sums the costs in a file that callgrind writes.

use std::collections::HashMap;

/// Numbers of user instructions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Instructions of all code.
    pub(super) total: u64,
    /// Instructions outside the C library and the cryptography of TLS.
    pub(super) own: u64,
}

impl Sum {
    /// Adds the costs of one file. In its format, `ob=`, `fl=` and `fn=` name the object, source file and function of the
    /// cost lines that follow. The line after `calls=` is the cost of a call; it is skipped, because the called function
    /// has it too. A name is written in full once, as `(7) name`, and as `(7)` afterwards.
    pub(super) fn read(&mut self, text: &str) {
        let [mut objects, mut sources, mut functions] = [(); 3].map(|()| HashMap::new());
        let (mut object_is_ours, mut source_is_ours, mut function_is_ours) = (true, true, true);
        let mut is_call = false;
        for line in text.lines() {
            match line.split_once('=') {
                Some(("ob", name)) => object_is_ours = look_up(&mut objects, name, is_our_object),
                Some(("cob", name)) => _ = look_up(&mut objects, name, is_our_object),
                Some(("fl", name)) => source_is_ours = look_up(&mut sources, name, is_our_source),
                // The files of inlined code, and of called functions.
                Some(("fi" | "fe" | "cfi" | "cfl", name)) => {
                    _ = look_up(&mut sources, name, is_our_source)
                }
                Some(("fn", name)) => {
                    function_is_ours = look_up(&mut functions, name, is_our_function)
                }
                Some(("cfn", name)) => _ = look_up(&mut functions, name, is_our_function),
                Some(("calls", _)) => is_call = true,
                _ if line
                    .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) =>
                {
                    let cost = line.split_whitespace().nth(1);
                    let cost = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
                    if !std::mem::take(&mut is_call) {
                        self.total += cost;
                        if object_is_ours && source_is_ours && function_is_ours {
                            self.own += cost;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Looks up a name, which is written as `(7) name` or `(7)`.
fn look_up(names: &mut HashMap<String, bool>, name: &str, is_ours: fn(&str) -> bool) -> bool {
    match name.split_once(' ') {
        Some((number, name)) => {
            let ours = is_ours(name);
            names.insert(number.to_owned(), ours);
            ours
        }
        None => names.get(name).copied().unwrap_or(true),
    }
}

fn is_our_object(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    ![
        "libc.so",
        "libc-",
        "ld-linux",
        "libm.so",
        "libcrypto",
        "libssl",
        "libgcc_s",
    ]
    .iter()
    .any(|library| file.starts_with(library))
}

/// Not the C code of the cryptography. Its random numbers need a different number of instructions in each run.
fn is_our_source(path: &str) -> bool {
    !path.starts_with("/aws-lc/")
}

fn is_our_function(name: &str) -> bool {
    !["aws_lc_", "aesni_", "gcm_", "_aesni", "_aes"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_counts_for_the_function_that_spends_it() {
        let mut sum = Sum::default();
        sum.read(
            "version: 1\nevents: Ir\nob=(1) /usr/bin/it\nfl=(1) a.rs\nfn=(1) proxy::handle\n10 100\n+2 20\n\
             cob=(2) /lib/libc.so.6\ncfn=(2) memcpy\ncalls=3 0\n* 1000\n* 7\n\nob=(2)\nfn=(2)\n5 1000\n\n\
             ob=(1)\nfn=(3) aws_lc_0_42_aes_hw_encrypt\n0 300\nfl=(2) /aws-lc/crypto/rand.c\nfn=(4) rol64\n0 50\n\
             fl=(1)\nfn=(1)\n1 1\nsummary: 1478\n",
        );
        assert_eq!(
            sum,
            Sum {
                total: 1478,
                own: 128
            }
        );
    }
}
