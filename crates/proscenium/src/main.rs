//! The executable. The library of this package contains the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    proscenium::main()
}
