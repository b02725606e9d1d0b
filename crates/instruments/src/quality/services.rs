//! The services of the far end that the measurement needs, and the ports at which they are found.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::endpoint::{self, CONNECT_TIMEOUT, Family, Local};
use crate::error::{Error, Result};
use crate::failure::{Failure, check_stop};
use crate::http::HttpTarget;
use crate::instrument::{FarEnd, NETWORK};
use crate::stamp::reflector::UNPRIVILEGED_PORT;
use crate::stamp::{self, EXTENDED_SIZE, ProbePlan, wire};
use record::lateness::Traffic;

/// The TCP ports of `farwire serve`'s web server: its default, and the one of a test bed.
const HTTP_PORTS: [u16; 2] = [8080, 80];
/// The number of probes that look for a reflector, so that a lossy path loses hardly ever all of them.
const ATTEMPTS: u32 = 5;
/// The path of an object of one byte.
const ONE_BYTE: &str = "/bytes/1";

/// The ports of the far end's services
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
#[command(next_help_heading = NETWORK)]
pub(super) struct ServicePortArgs {
    /// TCP port of the loads (iperf3's protocol)
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 5201,
        hide_short_help = true
    )]
    iperf3_port: u16,
    /// UDP port of the probes (STAMP) [default: 862, else 8620]
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    stamp_port: Option<u16>,
    /// TCP port of the web server, whose answers give the responsiveness [default: 8080, else 80]
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    http_port: Option<u16>,
    /// The TCP port of the web server in a test bed.
    #[arg(skip)]
    #[serde(skip)]
    bed_http_port: Option<u16>,
}

/// The services of a far end.
#[derive(Clone, Debug)]
pub(super) struct FarServices {
    /// The STAMP reflector.
    pub(super) stamp: SocketAddr,
    /// The iperf3 server.
    pub(super) iperf3: SocketAddr,
    /// An object of one byte at the web server, or the reason why there is none.
    pub(super) web: Result<HttpTarget, String>,
}

impl ServicePortArgs {
    /// Resolves the far end's name or address.
    ///
    /// # Errors
    /// Returns an error if the host does not resolve, or has no address of `family`.
    pub(super) fn resolve(&self, host: &str, family: Family) -> Result<IpAddr> {
        Ok(endpoint::resolve(host, self.iperf3_port, family)?.ip())
    }

    /// Sets the ports of a far end in a test bed.
    pub(super) fn set_far_end(&mut self, far_end: &FarEnd) {
        self.bed_http_port = Some(far_end.http);
    }

    /// Returns the TCP port of the web server if it is known.
    fn known_http_port(&self) -> Option<u16> {
        self.http_port.or(self.bed_http_port)
    }

    /// Returns the traffic of the measurement, as far as the ports are known.
    pub(super) fn traffic(&self) -> Vec<Traffic> {
        let stamp = self.stamp_port.unwrap_or(wire::PORT);
        let http = self.known_http_port().unwrap_or(HTTP_PORTS[0]);
        vec![
            Traffic::Udp(Some(stamp)),
            Traffic::Tcp(Some(self.iperf3_port)),
            Traffic::Tcp(Some(http)),
        ]
    }
}

impl FarServices {
    /// Finds the services of the far end at `address`. The inner error is the reason if no reflector answers there.
    ///
    /// # Errors
    /// Returns a failure if the near end cannot be bound, or the kernel does not stamp packets.
    pub(super) fn find(
        address: IpAddr,
        ports: &ServicePortArgs,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Result<Self, String>, Failure> {
        let usual = [wire::PORT, UNPRIVILEGED_PORT];
        let stamp = candidates(address, ports.stamp_port, &usual);
        let stamp = match find_reflector(&stamp, local, session)? {
            Ok(found) => found,
            Err(cause) => return Ok(Err(cause)),
        };
        let http = candidates(address, ports.known_http_port(), &HTTP_PORTS);
        Ok(Ok(Self {
            stamp,
            iperf3: SocketAddr::new(address, ports.iperf3_port),
            web: find_web_server(&http, local, session).map_err(|error| format!("{error:#}")),
        }))
    }
}

/// Returns the addresses of a service: that with the port that the user named, or those with its usual ports.
fn candidates(address: IpAddr, named: Option<u16>, usual: &[u16]) -> Vec<SocketAddr> {
    let ports = match named {
        Some(port) => vec![port],
        None => usual.to_vec(),
    };
    let at = |port| SocketAddr::new(address, port);
    ports.into_iter().map(at).collect()
}

/// Returns the first of `all` that answers any of a few probes. The inner error is what happened at each of them.
fn find_reflector(
    all: &[SocketAddr],
    local: Option<&Local>,
    session: &Session,
) -> Result<Result<SocketAddr, String>, Failure> {
    let plan = ProbePlan {
        size: EXTENDED_SIZE,
        count: ATTEMPTS,
        interval: Nanos::from_millis(50),
        train: 1,
        timeout: None,
        dscp: None,
    };
    let mut causes = Vec::new();
    for target in all {
        check_stop(&session.stop)?;
        let (_, failure) = stamp::probe(*target, local, &plan, session)?;
        match failure {
            None => return Ok(Ok(*target)),
            Some(cause) => causes.push(cause),
        }
    }
    Ok(Err(causes.join("; ")))
}

/// Returns an object of one byte at the first of `all` that accepts a connection.
fn find_web_server(
    all: &[SocketAddr],
    local: Option<&Local>,
    session: &Session,
) -> Result<HttpTarget> {
    let mut causes = Vec::new();
    for target in all {
        let socket = endpoint::tcp(*target, local)?;
        match endpoint::connect(socket, *target, CONNECT_TIMEOUT, &session.stop) {
            Ok(_) => return Ok(HttpTarget::of(*target, ONE_BYTE)),
            Err(error) => causes.push(format!("{error:#}")),
        }
    }
    Err(Error::Peer(causes.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig};
    use std::net::Ipv4Addr;

    #[test]
    fn a_named_port_is_the_only_candidate() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let ports = |named| -> Vec<u16> {
            let all = candidates(address, named, &HTTP_PORTS);
            all.iter().map(SocketAddr::port).collect()
        };
        assert_eq!(ports(None), [8080, 80]);
        assert_eq!(ports(Some(7)), [7]);
    }

    #[test]
    fn services_are_found_and_a_missing_web_server_is_only_a_reason() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let port = |name: &str| server.address(name).unwrap().port();
        let find = |stamp_port, http_port| {
            let ports = ServicePortArgs {
                iperf3_port: port("iperf3"),
                stamp_port: Some(stamp_port),
                http_port: Some(http_port),
                bed_http_port: None,
            };
            let address = Ipv4Addr::LOCALHOST.into();
            FarServices::find(address, &ports, None, &Session::default()).unwrap()
        };
        let found = find(port("stamp"), port("http")).unwrap();
        assert_eq!(found.stamp.port(), port("stamp"));
        assert!(found.web.is_ok());
        // Port 1 of loopback has no service on any usual machine.
        let found = find(port("stamp"), 1).unwrap();
        let cause = found.web.unwrap_err();
        assert!(cause.contains("refuses the connection"), "{cause}");
        let cause = find(1, port("http")).unwrap_err();
        assert!(
            cause.contains("no STAMP reflector listens there"),
            "{cause}"
        );
    }
}
