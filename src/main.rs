//! farwire: a wide-area network between two interfaces, measured through, with the trust of every number stated.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    farwire::main()
}
