//! What a URL names.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Amount;
use crate::endpoint::{self, Family};

/// Stands in a URL for a file's size in bytes.
pub(crate) const SIZE: &str = "{size}";

/// What to download from where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpTarget {
    pub(super) address: SocketAddr,
    /// Host and port as the Host header has them.
    pub(super) authority: String,
    pub(super) path: String,
}

impl HttpTarget {
    /// The resource `path` of the server at `address`.
    pub(crate) fn of(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            authority: address.to_string(),
            path: path.to_owned(),
        }
    }

    /// The resource of `farwire serve` at `address` that yields `amount` and then ends.
    pub(crate) fn far_end(address: SocketAddr, amount: Amount) -> Self {
        let path = match amount {
            Amount::Whole => "/".to_owned(),
            Amount::Bytes(bytes) => format!("/bytes/{bytes}"),
            Amount::For(time) => format!("/seconds/{}", time.as_secs_f64()),
        };
        Self::of(address, &path)
    }

    /// As [`HttpTarget::far_end`], for a client whose own clock ends the download: the server does not end it sooner.
    pub(crate) fn outlasting(address: SocketAddr, amount: Amount) -> Self {
        const LONGER: Duration = Duration::from_secs(5);
        Self::far_end(
            address,
            match amount {
                Amount::For(time) => Amount::For(time + LONGER),
                whole => whole,
            },
        )
    }

    /// With `size` in place of every [`SIZE`] in its path.
    pub(crate) fn of_size(&self, size: u64) -> Self {
        Self {
            path: self.path.replace(SIZE, &size.to_string()),
            ..self.clone()
        }
    }

    /// Whether its path has a [`SIZE`] to be put in.
    pub(crate) fn has_size(&self) -> bool {
        self.path.contains(SIZE)
    }

    /// The files of `farwire serve` on the same server, each by its size.
    pub(crate) fn sized(&self) -> Self {
        Self {
            path: format!("/bytes/{SIZE}"),
            ..self.clone()
        }
    }

    /// Whether it names a server and nothing on it.
    pub(crate) fn is_bare(&self) -> bool {
        self.path == "/"
    }

    /// The resource that `url` names.
    ///
    /// # Errors
    /// Not an `http://` URL, or a host that does not resolve to `family`.
    pub(crate) fn resolve(url: &str, family: Family) -> Result<Self> {
        let uri: http::Uri = url
            .parse()
            .with_context(|| format!("`{url}` is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!("`{url}`: write http://HOST[:PORT]/PATH (farwire measures without TLS)");
        }
        let authority = uri.authority().context("a URL needs a host")?;
        let port = authority.port_u16().unwrap_or(80);
        let address = endpoint::resolve(authority.host(), port, family)?;
        Ok(Self {
            address,
            authority: authority.to_string(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_ends_by_its_own_clock_is_served_longer() {
        let address = "10.77.0.2:80".parse().unwrap();
        let amount = Amount::For(Duration::from_millis(1500));
        let path = |target: HttpTarget| target.path;
        assert_eq!(path(HttpTarget::far_end(address, amount)), "/seconds/1.5");
        assert_eq!(
            path(HttpTarget::outlasting(address, amount)),
            "/seconds/6.5"
        );
    }

    #[test]
    fn urls_are_checked() {
        assert_eq!(
            HttpTarget::resolve("http://127.0.0.1:81/a?b", Family::Any)
                .unwrap()
                .to_string(),
            "http://127.0.0.1:81/a?b"
        );
        assert_eq!(
            HttpTarget::resolve("http://[::1]", Family::V6)
                .unwrap()
                .address
                .to_string(),
            "[::1]:80"
        );
        for (url, family) in [
            ("https://127.0.0.1/", Family::Any),
            ("127.0.0.1", Family::Any),
            ("http://127.0.0.1/", Family::V6),
        ] {
            assert!(HttpTarget::resolve(url, family).is_err());
        }
    }

    #[test]
    fn a_size_takes_its_place_in_the_path() {
        let url = "http://127.0.0.1:81/f/{size}?n={size}";
        let target = HttpTarget::resolve(url, Family::Any).unwrap();
        assert!(target.has_size() && !target.is_bare());
        assert_eq!(target.of_size(512).path, "/f/512?n=512");
    }
}
