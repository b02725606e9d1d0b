#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| instruments::fuzzing::netem(bytes));
