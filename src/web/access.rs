//! Access by token: the full-access token allows everything, the read-only token allows reading.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use axum::http::{HeaderMap, Method, StatusCode, header};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

use super::problem::Problem;
use instruments::serve::ClientKey;

/// The shortest allowed token.
const SHORTEST_TOKEN: usize = 16;

/// The number of wrong tokens that one address may send in a row, and the time after which it may
/// send another.
const MOST_WRONG: u32 = 10;
const WRONG_INTERVAL: Duration = Duration::from_secs(6);

/// The number of addresses whose wrong tokens are remembered. Beyond it, the address whose wrong
/// tokens expire first is forgotten.
const MOST_ADDRESSES: usize = 1_024;

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A TCP connection from this address.
    Tcp(SocketAddr),
    /// A Unix socket, with the user if the kernel reports one.
    Unix(Option<u32>),
}

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenRole {
    /// No token was required.
    None,
    /// The full-access token.
    All,
    /// The read-only token.
    Read,
}

/// The required tokens, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access(Option<Arc<Tokens>>);

#[derive(Debug)]
struct Tokens {
    /// The token for full access.
    all: Token,
    /// The token for reading everything except packets.
    read: Option<Token>,
    wrong: Mutex<HashMap<Option<ClientKey>, WrongTokens>>,
}

/// The digest of a token. Digests are compared in the same time for tokens of any length.
#[derive(Clone, Copy)]
struct Token([u8; 32]);

/// The wrong tokens from an address, each of which counts for a limited time.
#[derive(Clone, Copy, Debug)]
struct WrongTokens {
    /// The time at which the last of them no longer counts.
    until: Instant,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(Some(user)) => write!(f, "the Unix socket, user {user}"),
            Self::Unix(None) => f.write_str("the Unix socket"),
        }
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no token",
            Self::All => "full-access token",
            Self::Read => "read-only token",
        })
    }
}

impl Access {
    /// Requires a token: `all` for full access, or `read` for reading. Without tokens, nothing is
    /// required.
    ///
    /// # Errors
    /// Fails if a token is too short or contains characters that a header cannot have, if both are
    /// equal, or if `read` is given without `all`.
    pub(crate) fn new(all: Option<&str>, read: Option<&str>) -> Result<Self> {
        for token in all.iter().chain(&read) {
            ensure!(
                token.len() >= SHORTEST_TOKEN,
                "a token has at least {SHORTEST_TOKEN} characters: `openssl rand -hex 16` makes one"
            );
            ensure!(
                token.bytes().all(|byte| byte.is_ascii_graphic()),
                "a token has letters, digits and punctuation of ASCII only, and no spaces"
            );
        }
        ensure!(
            all != read || all.is_none(),
            "the read-only token equals the full-access token: choose another"
        );
        ensure!(
            read.is_none() || all.is_some(),
            "there is a read-only token but no full-access token: add one"
        );
        let tokens = all.map(|all| Tokens {
            all: Token::of(all),
            read: read.map(Token::of),
            wrong: Mutex::default(),
        });
        Ok(Self(tokens.map(Arc::new)))
    }

    /// Requires a new random token and returns it.
    ///
    /// # Errors
    /// Fails if the kernel provides no random numbers.
    pub(super) fn generate() -> Result<(Self, String)> {
        let mut random = [0; SHORTEST_TOKEN];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| anyhow!("the kernel provides no random numbers for a token"))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Self::new(Some(&token), None)?, token))
    }

    /// Returns true if a token is required.
    pub(crate) fn is_guarded(&self) -> bool {
        self.0.is_some()
    }

    /// Checks a request and returns the role of its token.
    ///
    /// # Errors
    /// Fails if the request has no token, a wrong one, or one that does not allow the request.
    pub(super) fn admit(
        &self,
        peer: Peer,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<TokenRole, Problem> {
        let Some(tokens) = self.0.as_deref().filter(|_| !is_open(path)) else {
            return Ok(TokenRole::None);
        };
        let sent = headers
            .get(header::AUTHORIZATION)
            .and_then(|sent| sent.to_str().ok());
        let token = sent.and_then(bearer).ok_or_else(|| {
            Problem::unauthorized("this farwire requires a token: Authorization: Bearer TOKEN")
        })?;
        tokens.check(peer, token, method, path, Instant::now())
    }
}

/// Returns the token in a value of `Authorization`. The name of the scheme is case-insensitive (RFC
/// 9110, section 11.1).
fn bearer(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns true for paths that need no token: the web page, which contains no secrets and asks for
/// a token.
pub(super) fn is_open(path: &str) -> bool {
    path == "/" || path.starts_with("/page/")
}

impl Tokens {
    fn check(
        &self,
        peer: Peer,
        sent: &str,
        method: &Method,
        path: &str,
        now: Instant,
    ) -> Result<TokenRole, Problem> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let from = match peer {
            Peer::Tcp(address) => Some(ClientKey::of(address.ip())),
            Peer::Unix(_) => None,
        };
        // An address with too many wrong tokens is refused even with a right one, so that an
        // attempt does not reveal it.
        let is_heard = |of: &WrongTokens| of.until <= now + WRONG_INTERVAL * (MOST_WRONG - 1);
        if wrong.get(&from).is_some_and(|of| !is_heard(of)) {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "too many wrong tokens: try again in {} s",
                    WRONG_INTERVAL.as_secs()
                ),
            );
            return Err(problem.with_retry_after(WRONG_INTERVAL));
        }
        let sent = Token::of(sent);
        // Both tokens are always compared, so that the time does not reveal which one matched.
        let [is_all, is_read] = [Some(&self.all), self.read.as_ref()]
            .map(|token| token.is_some_and(|token| token.is(&sent)));
        if !is_all && !is_read {
            note(&mut wrong, from, now);
            return Err(Problem::unauthorized("the token is wrong"));
        }
        let reads = *method == Method::GET || *method == Method::HEAD;
        let is_packets = path.ends_with("/capture");
        if is_all {
            Ok(TokenRole::All)
        } else if reads && !is_packets {
            Ok(TokenRole::Read)
        } else {
            Err(Problem::forbidden(
                "the read-only token allows watching only: changes and captures need the full-access token",
            ))
        }
    }
}

/// Records a wrong token.
fn note(
    wrong: &mut HashMap<Option<ClientKey>, WrongTokens>,
    from: Option<ClientKey>,
    now: Instant,
) {
    wrong.retain(|_, of| of.until > now);
    if wrong.len() >= MOST_ADDRESSES && !wrong.contains_key(&from) {
        let first = wrong.iter().min_by_key(|(_, of)| of.until);
        if let Some(first) = first.map(|(from, _)| *from) {
            wrong.remove(&first);
        }
    }
    let of = wrong.entry(from).or_insert(WrongTokens { until: now });
    of.until = of.until.max(now) + WRONG_INTERVAL;
}

impl Token {
    fn of(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Compares in constant time.
    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;

    const ALL: &str = "all-0123456789abcdef";
    const READ: &str = "read-0123456789abcdef";

    fn tokens() -> Tokens {
        Tokens {
            all: Token::of(ALL),
            read: Some(Token::of(READ)),
            wrong: Mutex::default(),
        }
    }

    fn status(admitted: Result<TokenRole, Problem>) -> u16 {
        let refused = admitted.err();
        refused.map_or(200, |problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn a_token_allows_the_requests_of_its_role() {
        let access = Access::new(Some(ALL), Some(READ)).unwrap();
        let asks = |token: Option<&str>, method: Method, path: &str| {
            let mut headers = HeaderMap::new();
            if let Some(token) = token {
                headers.insert(header::AUTHORIZATION, token.parse().unwrap());
            }
            status(access.admit(Peer::Unix(None), &method, path, &headers))
        };
        let bearer = |token: &str| format!("Bearer {token}");
        let (all, read) = (bearer(ALL), bearer(READ));
        assert_eq!(asks(None, Method::GET, "/"), 200);
        assert_eq!(asks(None, Method::GET, "/page/app.js"), 200);
        for path in ["/v1/links", "/metrics", "/v1/openapi.json", "/x"] {
            assert_eq!(asks(None, Method::GET, path), 401, "{path}");
            assert_eq!(asks(Some(ALL), Method::GET, path), 401, "{path}");
            assert_eq!(asks(Some(&bearer("x")), Method::GET, path), 401, "{path}");
            assert_eq!(asks(Some(&read), Method::GET, path), 200, "{path}");
            assert_eq!(asks(Some(&all), Method::PUT, path), 200, "{path}");
            let lower = all.replace("Bearer", "bearer");
            assert_eq!(asks(Some(&lower), Method::PUT, path), 200, "{path}");
            let other = all.replace("Bearer", "Basic");
            assert_eq!(asks(Some(&other), Method::PUT, path), 401, "{path}");
            assert_eq!(asks(Some(&read), Method::PATCH, path), 403, "{path}");
        }
        let packets = "/v1/links/link/capture";
        assert_eq!(asks(Some(&read), Method::GET, packets), 403);
        assert_eq!(asks(Some(&all), Method::GET, packets), 200);
        let open = Access::new(None, None).unwrap();
        let headers = HeaderMap::new();
        let admitted = open.admit(Peer::Unix(None), &Method::PUT, packets, &headers);
        assert_eq!(admitted.unwrap(), TokenRole::None);
    }

    #[test]
    fn generated_tokens_are_long_and_differ() {
        let [(access, first), (_, second)] = [(); 2].map(|()| Access::generate().unwrap());
        assert!(access.is_guarded() && first != second);
        assert_eq!(first.len(), 32, "{first}");
    }

    #[test]
    fn after_ten_wrong_tokens_an_address_waits() {
        let tokens = tokens();
        let begun = Instant::now();
        let asks = |address: &str, token: &str, after: u64| {
            let peer = Peer::Tcp(SocketAddr::new(address.parse().unwrap(), 1));
            let now = begun + Duration::from_secs(after);
            status(tokens.check(peer, token, &Method::GET, "/v1/links", now))
        };
        for _ in 0..MOST_WRONG {
            assert_eq!(asks("192.0.2.1", "wrong", 0), 401);
        }
        assert_eq!(asks("192.0.2.1", "wrong", 0), 429);
        assert_eq!(asks("192.0.2.1", ALL, 0), 429, "a right one would show");
        assert_eq!(asks("::ffff:192.0.2.1", ALL, 0), 429);
        assert_eq!(asks("192.0.2.2", ALL, 0), 200);
        assert_eq!(asks("192.0.2.1", "wrong", 7), 401);
        assert_eq!(asks("192.0.2.1", "wrong", 7), 429);
        assert_eq!(asks("192.0.2.1", ALL, 14), 200);
        for host in 0..MOST_WRONG {
            assert_eq!(asks(&format!("2001:db8::{host}"), "wrong", 0), 401);
        }
        assert_eq!(
            asks("2001:db8::ffff", ALL, 0),
            429,
            "one network is one host's"
        );
        assert_eq!(asks("2001:db8:0:1::1", ALL, 0), 200);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_bounded() {
        let tokens = tokens();
        let now = Instant::now();
        for number in 0..u32::try_from(MOST_ADDRESSES).unwrap() + 10 {
            let peer = Peer::Tcp(SocketAddr::new(number.to_be_bytes().into(), 1));
            let refused = tokens.check(peer, "wrong", &Method::GET, "/v1/links", now);
            assert!(refused.is_err());
        }
        assert_eq!(tokens.wrong.lock().unwrap().len(), MOST_ADDRESSES);
    }

    #[test]
    fn an_invalid_token_is_refused() {
        for (all, read, words) in [
            (Some("short"), None, "at least 16"),
            (Some("with a blank in it 0123"), None, "no spaces"),
            (Some(ALL), Some(ALL), "choose another"),
            (None, Some(READ), "add one"),
        ] {
            let refused = Access::new(all, read).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
