//! TLS: the server's certificate, given or generated, and clients that identify it by its
//! fingerprint.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use anyhow::{Context, Result, anyhow, bail};
use ring::digest::{SHA256, digest};
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, ServerConfig, version};

use instruments::tls::CertificateVerifier;

/// The files of a certificate and its key, in PEM form.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    /// The certificate, followed by the chain to one that clients trust.
    pub(crate) certificate: PathBuf,
    /// The private key of the certificate.
    pub(crate) key: PathBuf,
}

/// The TLS configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) pin: Pin,
}

/// The fingerprint of a certificate: SHA-256 of its DER form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin([u8; 32]);

impl Tls {
    /// Uses the certificate in these files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, if it has no certificate or key, or if the key belongs to
    /// another certificate. The error names the file.
    pub(crate) fn read(files: &CertificateFiles) -> Result<Self> {
        let named = |file: &Path| format!("{}: cannot read", file.display());
        let chain = CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| named(&files.certificate))?;
        if chain.is_empty() {
            bail!(
                "{}: the file contains no certificate in PEM form",
                files.certificate.display()
            );
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).with_context(|| named(&files.key))?;
        Self::of(chain, key).with_context(|| {
            format!(
                "{} and {}",
                files.certificate.display(),
                files.key.display()
            )
        })
    }

    /// Generates a new certificate, which clients can only identify by its fingerprint.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub(crate) fn self_signed(bound: SocketAddr) -> Result<Self> {
        let mut names = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        if !bound.ip().is_unspecified() {
            names.push(bound.ip().to_string());
        }
        let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|why| anyhow!("cannot make a key: {why}"))?;
        Self::of(vec![made.cert.der().clone()], key)
    }

    fn of(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self> {
        let pin = Pin::of(chain.first().context("no certificate")?);
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self {
            config: Arc::new(config),
            pin,
        })
    }
}

impl Pin {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }

    /// Returns the configuration of a client that identifies the server by this fingerprint.
    ///
    /// # Errors
    /// This program's choice of ciphers causes no error.
    pub(crate) fn client(self) -> Result<ClientConfig> {
        client(move |certificate| match Self::of(certificate) {
            shown if shown == self => Ok(()),
            shown => Err(Error::General(format!(
                "the server there has another certificate than --pin names: its fingerprint is {shown}. Another program answers, or that \
                 farwire was started again: it prints the fingerprint at its start"
            ))),
        })
    }
}

/// Returns the configuration of a client that rejects every certificate, and a flag that it sets if a server presents one.
///
/// # Errors
/// This program's choice of ciphers causes no error.
pub(crate) fn detector() -> Result<(ClientConfig, Arc<AtomicBool>)> {
    let presented = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&presented);
    let config = client(move |_| {
        flag.store(true, Ordering::Relaxed);
        Err(Error::General("no certificate is accepted".to_owned()))
    })?;
    Ok((config, presented))
}

/// Returns what an error of a TLS handshake says for people: the words of a check of the certificate alone, without those that
/// the library puts in front of them.
pub(crate) fn in_words(error: io::Error) -> anyhow::Error {
    let of_tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match of_tls {
        Some(Error::General(words)) => anyhow!("{words}"),
        Some(Error::InvalidMessage(_)) => anyhow!(
            "the server there does not use TLS: write --at with http://, or without a scheme"
        ),
        _ => error.into(),
    }
}

/// Returns the configuration of a client with this check of the server's certificate.
fn client<C>(check: C) -> Result<ClientConfig>
where
    C: Fn(&CertificateDer<'_>) -> Result<(), Error> + Send + Sync + 'static,
{
    let provider = Arc::new(provider::default_provider());
    let verifier = CertificateVerifier {
        provider: Arc::clone(&provider),
        check,
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right = "write the SHA-256 fingerprint of a certificate, 64 hexadecimal digits, as the running farwire printed it: sha256:1f2e...";
        let digits: String = text
            .strip_prefix("sha256:")
            .unwrap_or(text)
            .chars()
            .filter(|c| *c != ':')
            .collect();
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(right.to_owned());
        }
        for (place, byte) in bytes.iter_mut().enumerate() {
            let two = &digits[2 * place..2 * place + 2];
            *byte = u8::from_str_radix(two, 16).map_err(|_| right.to_owned())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// Returns the text that a client reads which identifies the server by `pin`.
    fn reads(server: &Tls, pin: Pin) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let at = listener.local_addr()?;
        let config = Arc::clone(&server.config);
        let serving = std::thread::spawn(move || -> io::Result<()> {
            let (stream, _) = listener.accept()?;
            let server = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
            let mut stream = rustls::StreamOwned::new(server, stream);
            stream.write_all(b"hello")?;
            stream.conn.send_close_notify();
            stream.flush()
        });
        let config = Arc::new(pin.client().unwrap());
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let client = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = rustls::StreamOwned::new(client, TcpStream::connect(at)?);
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        drop(stream);
        // This fails if the client has disconnected.
        let _ = serving.join();
        read.map(|_| text)
    }

    #[test]
    fn a_client_accepts_only_the_certificate_with_its_fingerprint() {
        let at = "192.0.2.1:7700".parse().unwrap();
        let [one, other] = [(); 2].map(|()| Tls::self_signed(at).unwrap());
        assert_ne!(one.pin, other.pin);
        assert_eq!(reads(&one, one.pin).unwrap(), "hello");
        let refused = in_words(reads(&one, other.pin).unwrap_err()).to_string();
        assert!(refused.contains(&one.pin.to_string()), "{refused}");
        assert!(
            refused.starts_with("the server there has another certificate"),
            "{refused}"
        );
    }

    #[test]
    fn a_fingerprint_is_read_in_the_own_form_and_in_that_of_openssl() {
        let pin = Pin::of(&CertificateDer::from(vec![1, 2, 3]));
        assert_eq!(pin.to_string().parse(), Ok(pin));
        let upper = pin.to_string()[7..].to_uppercase();
        let pairs: Vec<&str> = (0..32).map(|n| &upper[2 * n..2 * n + 2]).collect();
        assert_eq!(pairs.join(":").parse(), Ok(pin));
        for wrong in ["", "sha256:00", "sha256:zz", &"é".repeat(32)] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_invalid_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = file("certificate.pem", &made.cert.pem());
        let key = file("key.pem", &made.signing_key.serialize_pem());
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let other = file("other.pem", &other);
        let empty = file("empty.pem", "");
        let read = |certificate: &PathBuf, key: &PathBuf| {
            Tls::read(&CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            })
        };
        assert_eq!(
            read(&certificate, &key).unwrap().pin,
            Pin::of(made.cert.der())
        );
        for (certificate, key, words) in [
            (&empty, &key, "empty.pem: the file contains no certificate"),
            (&certificate, &empty, "empty.pem: cannot read"),
            (&certificate, &other, "other.pem"),
        ] {
            let refused = format!("{:#}", read(certificate, key).unwrap_err());
            assert!(refused.contains(words), "{refused}");
        }
    }
}
