//! Conversations with HTTP, pingpong, blast, transfer and iperf3. Their state machines have sockets in them, therefore each input is sent
//! to a far end in this process.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use instruments::serve::{self, FarEndServer, ServeConfig, ServicePorts};

/// A conversation that is silent for this time waits for more input, which does not come.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bytes of one read of its answers, and the number of reads.
const HEARD: usize = 64 * 1024;
const LOOKS: usize = 64;
const SERVICES: [&str; 3] = ["http", "messages", "iperf3"];

static FAR_END: LazyLock<FarEndServer> = LazyLock::new(|| {
    let config = ServeConfig {
        bind: "127.0.0.1".parse().ok(),
        ports: ServicePorts::free(),
        ..ServeConfig::default()
    };
    serve::start(config).expect("loopback has free ports")
});

/// Sends an input to the service that its first byte selects.
fn converse(bytes: &[u8]) {
    let Some((service, said)) = bytes.split_first() else {
        return;
    };
    let service = SERVICES[usize::from(*service) % SERVICES.len()];
    let address = FAR_END.address(service).expect("it is served");
    // All ports of this machine may be in use.
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it must be above 0");
    let _ = stream.write_all(said);
    let _ = stream.shutdown(Shutdown::Write);
    // Then the client hangs up, even if the service would go on sending. A panic of any thread ends the fuzzer.
    let mut heard = [0; HEARD];
    for _ in 0..LOOKS {
        if !matches!(stream.read(&mut heard), Ok(1..)) {
            return;
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| converse(bytes));
