//! What a URL names.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

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
    #[cfg(test)]
    pub(crate) fn of(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            authority: address.to_string(),
            path: path.to_owned(),
        }
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

    /// The same server at another path.
    pub(crate) fn at(self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
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
