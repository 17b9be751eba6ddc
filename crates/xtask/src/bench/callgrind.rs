//! Sums the costs in a file that callgrind writes.

use std::collections::{BTreeMap, HashMap, HashSet};

/// Options of callgrind with which a [`Sum`] also has cache misses. The caches are not those of any particular
/// processor, so that figures from different machines can be compared: 32 KiB for instructions, 48 KiB for data, 2 MiB
/// behind both.
pub(super) const CACHES: &[&str] = &[
    "--cache-sim=yes",
    "--I1=32768,8,64",
    "--D1=49152,12,64",
    "--LL=2097152,16,64",
];

/// Options of callgrind with which a [`Sum`] also has the executed instructions.
pub(super) const ADDRESSES: &[&str] = &["--dump-instr=yes", "--compress-pos=no"];

/// The costs of a program in user mode.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Instructions of all code.
    pub(super) total: u64,
    /// Instructions outside the C library, the allocator and the cryptography of TLS.
    pub(super) own: u64,
    /// Misses of the first cache for instructions, in all code. All misses are 0 without [`CACHES`].
    pub(super) instruction_misses: u64,
    /// Misses of the first cache for data, reads and writes, in all code.
    pub(super) data_misses: u64,
    /// Misses of both first caches outside the C library, the allocator and the cryptography of TLS.
    pub(super) own_misses: u64,
    /// Empty without [`ADDRESSES`].
    pub(super) executed: Executed,
}

/// How many times each instruction was executed, by the path of its object file and its address in that file.
pub(super) type Executed = BTreeMap<String, HashMap<u64, u64>>;

/// The columns of the cost lines of a file.
struct Columns {
    /// Whether the first column is the address of an instruction.
    has_address: bool,
    instructions: usize,
    instruction_misses: Vec<usize>,
    data_misses: Vec<usize>,
}

impl Columns {
    /// The columns of a file without a header: the source line, and the number of instructions.
    fn plain() -> Self {
        Self {
            has_address: false,
            instructions: 1,
            instruction_misses: Vec::new(),
            data_misses: Vec::new(),
        }
    }

    /// Finds the events in a header such as `Ir Dr Dw I1mr D1mr D1mw`. In a cost line they follow the positions.
    fn find(&mut self, events: &str) {
        let first = 1 + usize::from(self.has_address);
        let of = |names: &[&str]| {
            let events = events.split_whitespace().enumerate();
            let found = events.filter(|(_, event)| names.contains(event));
            found.map(|(number, _)| first + number).collect::<Vec<_>>()
        };
        self.instructions = of(&["Ir"]).first().copied().unwrap_or(first);
        self.instruction_misses = of(&["I1mr"]);
        self.data_misses = of(&["D1mr", "D1mw"]);
    }
}

impl Sum {
    /// Adds the costs of one file. In its format, `ob=`, `fl=` and `fn=` name the object, source file and function of the
    /// cost lines that follow. The line after `calls=` is the cost of a call; it is skipped, because the called function
    /// has it too. A name is written in full once, as `(7) name`, and as `(7)` afterwards. Events that are 0 at the end of
    /// a cost line are omitted.
    pub(super) fn read(&mut self, text: &str) {
        let [mut sources, mut functions] = [(); 2].map(|()| HashMap::new());
        let mut objects = HashMap::new();
        let (mut object_is_ours, mut source_is_ours, mut function_is_ours) = (true, true, true);
        let mut object = String::new();
        let mut executed = HashMap::new();
        let mut columns = Columns::plain();
        let mut is_call = false;
        for line in text.lines() {
            match line.split_once('=') {
                Some(("ob", name)) => {
                    let path = full_name(&mut objects, name);
                    if path != object {
                        self.add_executed(&object, &mut executed);
                        object_is_ours = is_our_object(&path);
                        object = path;
                    }
                }
                Some(("cob", name)) => _ = full_name(&mut objects, name),
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
                    if std::mem::take(&mut is_call) {
                        continue;
                    }
                    let words: Vec<_> = line.split_whitespace().collect();
                    let cost = |column: usize| -> u64 {
                        let cost = words.get(column).and_then(|cost| cost.parse().ok());
                        cost.unwrap_or(0)
                    };
                    let of_all =
                        |columns: &[usize]| columns.iter().map(|column| cost(*column)).sum();
                    let instructions = cost(columns.instructions);
                    let instruction_misses: u64 = of_all(&columns.instruction_misses);
                    let data_misses: u64 = of_all(&columns.data_misses);
                    self.total += instructions;
                    self.instruction_misses += instruction_misses;
                    self.data_misses += data_misses;
                    if object_is_ours && source_is_ours && function_is_ours {
                        self.own += instructions;
                        self.own_misses += instruction_misses + data_misses;
                    }
                    let address = words[0].strip_prefix("0x").filter(|_| columns.has_address);
                    let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                    if let Some(address) = address {
                        *executed.entry(address).or_default() += instructions;
                    }
                }
                _ => match line.split_once(": ") {
                    Some(("positions", positions)) => {
                        columns.has_address = positions.starts_with("instr ");
                    }
                    Some(("events", events)) => columns.find(events),
                    _ => {}
                },
            }
        }
        self.add_executed(&object, &mut executed);
    }

    /// The costs that this run has in addition to a run with fewer requests. These are the costs of the additional
    /// requests, without the start.
    pub(super) fn beyond(self, few: &Self) -> Self {
        let executed = self.executed.into_iter().map(|(object, times)| {
            let few = few.executed.get(&object);
            let more = times.into_iter().map(|(address, times)| {
                let before = few.and_then(|few| few.get(&address));
                (address, times.saturating_sub(before.copied().unwrap_or(0)))
            });
            (object, more.filter(|(_, times)| *times > 0).collect())
        });
        Self {
            total: self.total.saturating_sub(few.total),
            own: self.own.saturating_sub(few.own),
            instruction_misses: self
                .instruction_misses
                .saturating_sub(few.instruction_misses),
            data_misses: self.data_misses.saturating_sub(few.data_misses),
            own_misses: self.own_misses.saturating_sub(few.own_misses),
            executed: executed.collect(),
        }
    }

    fn add_executed(&mut self, object: &str, executed: &mut HashMap<u64, u64>) {
        if executed.is_empty() {
            return;
        }
        let known = self.executed.entry(object.to_owned()).or_default();
        for (address, times) in executed.drain() {
            *known.entry(address).or_default() += times;
        }
    }
}

/// The number of cache lines with an instruction that at least one request in [`RARE`] executes.
pub(super) fn hot_lines(executed: &Executed, requests: f64) -> usize {
    let of_object = |times: &HashMap<u64, u64>| {
        let hot = times
            .iter()
            .filter(|(_, times)| **times as f64 * RARE >= requests);
        let lines: HashSet<_> = hot.map(|(address, _)| address / LINE_BYTES).collect();
        lines.len()
    };
    executed.values().map(of_object).sum()
}

/// The full name of an entry that is written as `(7) name` or `(7)`.
fn full_name(names: &mut HashMap<String, String>, name: &str) -> String {
    match name.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(name).cloned().unwrap_or_default(),
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

/// False for the C code of the cryptography, whose random numbers need a different number of instructions in each run,
/// and for the allocator.
fn is_our_source(path: &str) -> bool {
    !path.starts_with("/aws-lc/") && !path.contains("/tikv-jemalloc-sys-")
}

fn is_our_function(name: &str) -> bool {
    !["aws_lc_", "aesni_", "gcm_", "_aesni", "_aes"]
        .iter()
        .any(|part| name.contains(part))
}

/// Bytes in a line of the cache.
pub(super) const LINE_BYTES: u64 = 64;
/// An instruction that is executed less than once in this number of requests is not part of a usual request.
const RARE: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_64_bytes_is_hot_if_one_request_in_ten_executes_it() {
        let times = [(0x00, 200), (0x3f, 200), (0x80, 19), (0xc0, 20)];
        let executed = BTreeMap::from([
            ("/usr/bin/it".to_owned(), HashMap::from(times)),
            ("/lib/libc.so.6".to_owned(), HashMap::from([(0x00, 200)])),
        ]);
        assert_eq!(hot_lines(&executed, 200.0), 3);
    }

    #[test]
    fn a_cost_counts_for_the_function_that_spends_it() {
        let mut sum = Sum::default();
        sum.read(
            "version: 1\nevents: Ir\nob=(1) /usr/bin/it\nfl=(1) a.rs\nfn=(1) proxy::handle\n10 100\n+2 20\n\
             cob=(2) /lib/libc.so.6\ncfn=(2) memcpy\ncalls=3 0\n* 1000\n* 7\n\nob=(2)\nfn=(2)\n5 1000\n\n\
             ob=(1)\nfn=(3) aws_lc_0_42_aes_hw_encrypt\n0 300\nfl=(2) /aws-lc/crypto/rand.c\nfn=(4) rol64\n0 50\n\
             fl=(3) /build/tikv-jemalloc-sys-1/include/rtree.h\nfn=(5) free\n7 20\n\
             fl=(1)\nfn=(1)\n1 1\nsummary: 1498\n",
        );
        assert_eq!(
            sum,
            Sum {
                total: 1498,
                own: 128,
                ..Sum::default()
            }
        );
    }

    #[test]
    fn misses_and_executed_instructions_are_read_by_the_names_of_their_columns() {
        let mut sum = Sum::default();
        sum.read(
            "positions: instr line\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nsummary: 30 9 9 9 9 9\n\n\
             ob=(1) /usr/bin/it\nfl=(1) a.rs\nfn=(1) proxy::handle\n0x1040 7 10 1 0 3 2 1 9 9 9\n0x1044 7 10\n\
             cob=(2) /lib/libc.so.6\ncfn=(2) memcpy\ncalls=3 0x40 0\n0x1044 7 1000 1 1 1 1 1 1\n\n\
             ob=(2)\nfn=(2)\n0x40 0 6 0 6 0 0 4\n\nob=(1)\nfn=(1)\n0x1040 8 4\n",
        );
        let executed = [
            ("/lib/libc.so.6", vec![(0x40, 6)]),
            ("/usr/bin/it", vec![(0x1040, 14), (0x1044, 10)]),
        ];
        let executed =
            executed.map(|(object, times)| (object.to_owned(), HashMap::from_iter(times)));
        assert_eq!(
            sum,
            Sum {
                total: 30,
                own: 24,
                instruction_misses: 3,
                data_misses: 7,
                own_misses: 6,
                executed: BTreeMap::from(executed),
            }
        );
        sum.read("ob=(1) /usr/bin/it\nfn=(1) main\n12 5 6 7 8 9\n");
        assert_eq!(
            (sum.total, sum.data_misses),
            (35, 7),
            "no header, no misses"
        );
    }

    #[test]
    fn a_longer_run_has_the_start_of_the_shorter_one() {
        let run = |misses: &str, handled| {
            let mut sum = Sum::default();
            sum.read(&format!(
                "positions: instr line\nevents: Ir I1mr D1mr\nob=(1) /usr/bin/it\nfn=(1) start\n0x10 1 900\n\
                 fn=(2) handle\n0x20 2 {handled} {misses}\n"
            ));
            sum
        };
        let more = run("3 5", 300).beyond(&run("1 2", 100));
        assert_eq!((more.total, more.own), (200, 200));
        assert_eq!(
            (more.instruction_misses, more.data_misses, more.own_misses),
            (2, 3, 5)
        );
        let executed = HashMap::from([(0x20, 200)]);
        assert_eq!(
            more.executed,
            BTreeMap::from([("/usr/bin/it".to_owned(), executed)])
        );
    }
}
