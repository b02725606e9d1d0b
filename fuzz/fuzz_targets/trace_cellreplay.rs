#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farwire::fuzzing::trace_cellreplay(bytes));
