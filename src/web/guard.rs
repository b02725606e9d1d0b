//! Decides which requests are accepted at all: those from programs on this machine or with a token,
//! and those from this server's own pages.
//!
//! A browser sends requests of any page to any address. A foreign page can resolve its own name to
//! this server and thereby become a page of the same origin (DNS rebinding); therefore `Host` must
//! be a loopback name or the address itself. A page of another origin can send requests whose
//! responses it cannot read (CSRF); therefore `Origin` must be this host. Images and scripts of a
//! foreign page are requested without `Origin`, but with `Sec-Fetch-Site` (Fetch Metadata Request
//! Headers, W3C), which must not name another site. If a token is required, any `Host` is accepted:
//! a foreign page does not have the token, and browsers do not send it by themselves.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::access::{self, Access, Peer, TokenRole};
use super::compression::compress;
use super::listen::Listening;
use super::problem::Problem;

/// The header of every response with the version. Clients identify a farwire by it.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("farwire-version");

/// The largest body that is read.
pub(super) const LARGEST_BODY: usize = 64 << 10;

/// The restrictions for browsers: nothing is loaded from other sites, and no inline script runs.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                   base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The number of accepted requests: a burst of 1,000, then 500 per second.
const QUOTA: Quota = Quota::per_second(NonZeroU32::new(500).expect("above 0"))
    .allow_burst(NonZeroU32::new(1_000).expect("above 0"));

/// A counter of requests, which its clones share.
type Rate = Arc<DefaultDirectRateLimiter>;

/// Checks the origin of every request.
#[derive(Clone, Debug)]
pub(super) struct RequestGuard {
    /// The bound address; `None` for a Unix socket, which browsers cannot reach.
    bound: Option<SocketAddr>,
    /// The scheme of this server's URLs.
    scheme: &'static str,
    access: Access,
    rate: Rate,
    /// The rate of refused requests, if a token is required.
    refused: Rate,
    /// The rate of requests for the page's files, which need no token, if one is required
    /// otherwise.
    open: Rate,
}

impl RequestGuard {
    pub(super) fn of(listening: &Listening) -> Self {
        Self {
            bound: listening.bound(),
            scheme: listening.scheme(),
            access: listening.access.clone(),
            rate: rate(),
            refused: rate(),
            open: rate(),
        }
    }

    /// Wraps a service. Every response, errors included, gets headers that restrict browsers.
    pub(super) fn around<S: Clone + Send + Sync + 'static>(
        self,
        router: Router<S>,
        app: S,
    ) -> Router {
        router
            .fallback(
                |uri: Uri| async move { Problem::not_found(format!("no {} is set", uri.path())) },
            )
            .method_not_allowed_fallback(|| async {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "wrong method: the header `Allow` lists the right ones",
                )
            })
            .layer(DefaultBodyLimit::max(LARGEST_BODY))
            .layer(middleware::from_fn(compress))
            .layer(middleware::from_fn_with_state(self, check))
            .with_state(app)
    }

    /// Checks a request and returns the role of its token.
    fn admit(&self, request: &Request) -> Result<TokenRole, Problem> {
        let peer = request
            .extensions()
            .get()
            .copied()
            .unwrap_or(Peer::Unix(None));
        let (path, headers) = (request.uri().path(), request.headers());
        let admitted = match self.refuse_foreign(path, headers) {
            Some(problem) => Err(problem),
            None => self.access.admit(peer, request.method(), path, headers),
        };
        // Requests without a token must not use up the rate of those with one.
        let too_many = match (self.access.is_guarded(), &admitted) {
            (true, Err(_)) => too_many(&self.refused),
            (true, Ok(_)) if access::is_open(path) => too_many(&self.open),
            (_, Ok(_)) => too_many(&self.rate),
            (false, Err(_)) => None,
        };
        too_many.map_or(admitted, Err)
    }

    /// Refuses requests of foreign pages, except links to this server's pages.
    fn refuse_foreign(&self, path: &str, headers: &HeaderMap) -> Option<Problem> {
        let bound = self.bound?;
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let is_right = |host: &&str| self.access.is_guarded() || is_own(host, bound);
        let Some(host) = host.filter(is_right) else {
            return Some(Problem::forbidden(format!(
                "the header Host is not a name of this server: use {bound} or localhost:{}",
                bound.port()
            )));
        };
        if is_cross_site(headers) && !(is_page(path) && is_navigation(headers)) {
            return Some(Problem::forbidden(
                "the request comes from another site's page (Sec-Fetch-Site): this server answers only its own page",
            ));
        }
        let origin = headers.get(header::ORIGIN)?;
        let is_same = origin.to_str().is_ok_and(|origin| {
            origin
                .strip_prefix(self.scheme)
                .is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        });
        (!is_same).then(|| {
            Problem::forbidden("the request comes from another site's page (Origin): this server answers only its own page")
        })
    }
}

fn rate() -> Rate {
    Arc::new(RateLimiter::direct(QUOTA))
}

/// Refuses requests above the rate.
fn too_many(rate: &Rate) -> Option<Problem> {
    let until = rate.check().err()?;
    let wait = until.wait_time_from(DefaultClock::default().now());
    let problem = Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too many requests: the header `Retry-After` says in how many seconds to try again",
    );
    Some(problem.with_retry_after(wait))
}

/// Returns true if the browser says that a page of another site sent the request; `same-site` means
/// another port of this host.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site == "cross-site" || site == "same-site")
}

/// Returns true if the browser shows the response to its user, as after a click on a link, so that
/// no page can read it.
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|sent| sent == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Returns true for pages, whose request changes nothing: the page of links, the list of records,
/// or the report of one.
fn is_page(path: &str) -> bool {
    path == "/" || path.ends_with("/report.html")
}

/// Returns true if `host` names the address of this server, with any port. The port of a tunnel is
/// the user's choice, and a foreign name does not become a loopback name by its port.
fn is_own(host: &str, bound: SocketAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_ours = |ip: IpAddr| ip == bound.ip() || ip.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_ours)
}

async fn check(State(guard): State<RequestGuard>, mut request: Request, next: Next) -> Response {
    let mut response = match guard.admit(&request) {
        Ok(role) => {
            request.extensions_mut().insert(role);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        // The page of a report sets its own policy.
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    let own = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", own);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;

    use super::*;

    fn refused(host: Option<&str>, origin: Option<&str>) -> bool {
        refused_of(Access::default(), "http://", host, origin)
    }

    fn refused_of(
        access: Access,
        scheme: &'static str,
        host: Option<&str>,
        origin: Option<&str>,
    ) -> bool {
        let guard = RequestGuard {
            bound: Some("127.0.0.1:7700".parse().unwrap()),
            scheme,
            access,
            rate: rate(),
            refused: rate(),
            open: rate(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        guard.refuse_foreign("/v1/links", &headers).is_some()
    }

    #[test]
    fn a_burst_is_accepted_and_then_500_requests_per_second() {
        let clock = FakeRelativeClock::default();
        let rate = RateLimiter::direct_with_clock(QUOTA, clock.clone());
        let accepted = |of: u32| (0..of).filter(|_| rate.check().is_ok()).count();
        let each = Duration::from_millis(2);
        assert_eq!(accepted(2_000), 1_000);
        let until = rate.check().unwrap_err();
        assert_eq!(until.wait_time_from(clock.now()), each);
        clock.advance(Duration::from_secs(1));
        assert_eq!(accepted(2_000), 500);
        // The unused quota accumulates to at most one burst.
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(accepted(2_000), 1_000);
        // A refused request does not count.
        clock.advance(each);
        assert_eq!(accepted(2_000), 1);
    }

    #[test]
    fn requests_of_foreign_pages_are_refused_except_links_to_pages() {
        let guard = RequestGuard {
            bound: Some("127.0.0.1:7700".parse().unwrap()),
            scheme: "http://",
            access: Access::default(),
            rate: rate(),
            refused: rate(),
            open: rate(),
        };
        let refused = |path: &str, site: &'static str, mode: &'static str, dest: &'static str| {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static("127.0.0.1:7700")),
                (
                    HeaderName::from_static("sec-fetch-site"),
                    HeaderValue::from_static(site),
                ),
                (
                    HeaderName::from_static("sec-fetch-mode"),
                    HeaderValue::from_static(mode),
                ),
                (
                    HeaderName::from_static("sec-fetch-dest"),
                    HeaderValue::from_static(dest),
                ),
            ]);
            guard.refuse_foreign(path, &headers).is_some()
        };
        let capture = "/v1/links/link/capture";
        for site in ["cross-site", "same-site"] {
            assert!(refused(capture, site, "no-cors", "image"), "{site}");
            assert!(refused(capture, site, "navigate", "document"), "{site}");
            assert!(refused("/", site, "no-cors", "image"), "{site}");
            assert!(refused("/", site, "navigate", "iframe"), "{site}");
            for page in ["/", "/report.html", "/first/report.html"] {
                assert!(
                    !refused(page, site, "navigate", "document"),
                    "{site}: {page}"
                );
            }
        }
        for site in ["same-origin", "none"] {
            assert!(!refused(capture, site, "no-cors", "empty"), "{site}");
        }
    }

    #[test]
    fn a_host_must_be_a_loopback_name_with_any_port() {
        for host in [
            "127.0.0.1:7700",
            "localhost:7700",
            "LOCALHOST:7700",
            "[::1]:7700",
            // This is the header behind `ssh -L 8080:127.0.0.1:7700`.
            "localhost:8080",
            "localhost",
            "[::1]",
        ] {
            assert!(!refused(Some(host), None), "{host}");
        }
        for host in [
            "evil.example:7700",
            "10.0.0.1:7700",
            "localhost.evil:7700",
            "",
        ] {
            assert!(refused(Some(host), None), "{host}");
        }
        assert!(refused(None, None));
    }

    #[test]
    fn with_a_token_any_host_is_accepted_and_the_origin_must_match_it() {
        let refused = |host, origin| {
            let access = Access::new(Some("0123456789abcdef"), None).unwrap();
            refused_of(access, "https://", host, origin)
        };
        let host = Some("bench.example:7700");
        assert!(!refused(host, None));
        assert!(!refused(host, Some("https://bench.example:7700")));
        assert!(refused(host, Some("http://bench.example:7700")));
        assert!(refused(host, Some("https://evil.example:7700")));
        assert!(refused(None, None));
    }

    #[test]
    fn an_origin_must_be_this_server() {
        let host = Some("localhost:7700");
        assert!(!refused(host, Some("http://localhost:7700")));
        for origin in [
            "http://evil.example",
            "https://localhost:7700",
            "http://localhost:8000",
            "null",
        ] {
            assert!(refused(host, Some(origin)), "{origin}");
        }
    }

    #[test]
    fn requests_without_a_token_do_not_use_up_the_rate_of_others() {
        let guard = RequestGuard {
            bound: Some("192.0.2.1:7700".parse().unwrap()),
            scheme: "https://",
            access: Access::new(Some("0123456789abcdef"), None).unwrap(),
            rate: rate(),
            refused: rate(),
            open: rate(),
        };
        let status = |path: &str, token: Option<&str>| {
            let mut request = Request::builder()
                .uri(path)
                .header(header::HOST, "192.0.2.1:7700");
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let admitted = guard.admit(&request.body(axum::body::Body::empty()).unwrap());
            admitted
                .err()
                .map(|problem| problem.into_response().status().as_u16())
        };
        for (path, first) in [("/v1/links", Some(401)), ("/", None)] {
            assert_eq!(status(path, None), first, "{path}");
            // On a stalled machine, the requests arrive more slowly.
            let refused = (0..1_000_000).find(|_| status(path, None) == Some(429));
            assert!(refused.is_some(), "{path}");
        }
        assert_eq!(status("/v1/links", Some("0123456789abcdef")), None);
    }
}
