//! The program `headrace`: all of it is in the library, which the Python package runs, too.

fn main() {
    std::process::exit(headrace_cli::run(std::env::args_os()));
}
