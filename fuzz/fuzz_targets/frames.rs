#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netio::fuzzing::frames(bytes));
