//! `measure tls` against a TLS server, and against one that speaks no TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustls::crypto::ring;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use test_support::measured::figure;
use test_support::process::{self, farwire};

#[test_support::test]
fn a_handshake_is_timed_and_what_was_agreed_is_stated() -> Result<()> {
    let server = tls_server()?.to_string();
    let mut command = farwire();
    command.args(["measure", "tls", &server, "-c", "6", "-i", "1ms"]);
    command.args(["--alpn", "h2,http/1.1", "--resume", "--json", "-"]);
    let measured: Value = process::json(command.args(["--server-name", "localhost"]))?;
    for (fact, wanted) in [
        ("version", "TLSv1_3"),
        ("alpn", "http/1.1"),
        ("resumed", "5 of 6"),
    ] {
        ensure!(measured["facts"][fact] == wanted, "{measured}");
    }
    for metric in ["tls_handshake_ms", "connect_ms"] {
        let median = figure(&measured, metric, "median").context("a median")?;
        ensure!(median > 0.0, "{measured}");
    }
    ensure!(figure(&measured, "lost_percent", "mean") == Some(0.0));
    Ok(())
}

#[test_support::test]
fn a_server_without_tls_is_named_as_the_cause() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let plain = thread::spawn(move || -> Result<()> {
        let (mut client, _) = listener.accept()?;
        client.write_all(b"220 mail.example ESMTP\r\n")?;
        // Wait until the client has disconnected.
        client.read_to_end(&mut Vec::new())?;
        Ok(())
    });
    let output = process::run(farwire().args(["measure", "tls", &address, "-c", "1"]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(said.contains("no TLS handshake with"), "{said}");
    // A reset connection has ended too.
    let _ = plain.join();
    Ok(())
}

/// Starts a server that ends each connection when its client does.
fn tls_server() -> Result<SocketAddr> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = own.signing_key.serialize_der();
    let key = key.try_into().map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = config
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.into()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(tls) = ServerConnection::new(Arc::clone(&config)) {
                // The client may end in any way.
                let _ = StreamOwned::new(tls, client).read(&mut [0; 16]);
            }
        }
    });
    Ok(address)
}
