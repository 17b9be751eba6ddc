//! The process; the library of this package is the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    proscenium::main()
}
