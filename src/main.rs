//! farwire: emulates a WAN, measures through it, and says how far to trust each number.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    farwire::main()
}
