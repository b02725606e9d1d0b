#![no_main]

libfuzzer_sys::fuzz_target!(
    init: farwire::fuzzing::keep_quiet(),
    |bytes: &[u8]| farwire::fuzzing::bodies(bytes)
);
