//! The set-up: a request for a test, and the answer that names the test's port or refuses; and the null request.

use std::fmt;

use bytes::{Buf, BufMut};

use super::{Malformed, Sizes, Version, check};

const NAME: &str = "setup message";
const IDENTIFIER: u16 = 0xace1;
const LENGTH: usize = 56;
const NULL_IDENTIFIER: u16 = 0xdead;
const NULL_LENGTH: usize = 48;
const JUMBO: u8 = 0x01;
const TRADITIONAL: u8 = 0x02;

/// A setup request, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// As it came: perhaps one that is not spoken here.
    pub(crate) version: u16,
    /// Which of the client's connections this is, from 0.
    pub(crate) connection: u8,
    /// How many the client opens.
    pub(crate) connections: u8,
    /// What the client's connections have in common; never 0.
    pub(crate) ident: u16,
    /// None in a request.
    pub(crate) answer: Option<SetupAnswer>,
    /// In an answer: the UDP port of the test.
    pub(crate) port: u16,
    /// Which table of sending rates.
    pub(crate) sizes: Sizes,
    /// 0 is unauthenticated.
    pub(crate) authentication: u8,
}

/// What a server says to a setup request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupAnswer {
    /// Go on with the activation.
    Accepted,
    /// The version is not spoken; the answer holds one that is.
    BadVersion,
    /// The other setting of jumbo sizes is asked for.
    BadJumbo,
    /// Authentication was offered to a server that has no key.
    NoAuthentication,
    /// Authentication is asked for.
    AuthenticationRequired,
    /// Authentication in another mode is asked for.
    AuthenticationMode,
    /// The digest is wrong.
    AuthenticationFailed,
    /// The clocks differ too much for authentication.
    AuthenticationTime,
    /// The server wants to be told the bandwidth needed.
    BandwidthRequired,
    /// No capacity is left for another test.
    CapacityExceeded,
    /// The other setting of traditional sizes is asked for.
    BadTraditional,
    /// The connections' numbers make no sense.
    BadConnections,
    /// The server could not open a socket.
    NoSocket,
    /// A number without a meaning here.
    Unknown(u8),
}

impl Setup {
    /// As bytes, without a checksum; only an answer holds a port.
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let mut to = &mut bytes[..];
        to.put_u16(IDENTIFIER);
        to.put_u16(self.version);
        to.put_u8(self.connection);
        to.put_u8(self.connections);
        to.put_u16(self.ident);
        to.put_u8(if self.answer.is_some() { 2 } else { 1 });
        to.put_u8(self.answer.map_or(0, SetupAnswer::number));
        to.put_u16(0); // The bandwidth that the client needs: not stated.
        to.put_u16(self.port);
        let jumbo = if self.sizes.jumbo { JUMBO } else { 0 };
        let traditional = if self.sizes.traditional {
            TRADITIONAL
        } else {
            0
        };
        to.put_u8(jumbo | traditional);
        to.put_u8(self.authentication);
        bytes
    }

    /// From a whole datagram.
    ///
    /// # Errors
    /// It is no setup message.
    pub(crate) fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        check(datagram, NAME, LENGTH, IDENTIFIER, LENGTH - 2)?;
        let mut from = &datagram[2..];
        let version = from.get_u16();
        let (connection, connections) = (from.get_u8(), from.get_u8());
        let ident = from.get_u16();
        let (request, response) = (from.get_u8(), from.get_u8());
        let answer = match request {
            1 => None,
            2 => Some(SetupAnswer::of(response)),
            came => {
                return Err(Malformed::Field {
                    message: NAME,
                    field: "cmdRequest",
                    came: came.into(),
                });
            }
        };
        from.advance(2);
        let port = from.get_u16();
        let modifiers = from.get_u8();
        Ok(Self {
            version,
            connection,
            connections,
            ident,
            answer,
            port,
            sizes: Sizes {
                jumbo: modifiers & JUMBO != 0,
                traditional: modifiers & TRADITIONAL != 0,
            },
            authentication: from.get_u8(),
        })
    }
}

/// The null request, which opens a firewall on its way to the client and means nothing else.
pub(crate) fn null_request(version: Version) -> [u8; NULL_LENGTH] {
    let mut bytes = [0; NULL_LENGTH];
    let mut to = &mut bytes[..];
    to.put_u16(NULL_IDENTIFIER);
    to.put_u16(version.number());
    to.put_u8(1);
    bytes
}

impl SetupAnswer {
    const NUMBERED: [(u8, Self); 13] = [
        (1, Self::Accepted),
        (2, Self::BadVersion),
        (3, Self::BadJumbo),
        (4, Self::NoAuthentication),
        (5, Self::AuthenticationRequired),
        (6, Self::AuthenticationMode),
        (7, Self::AuthenticationFailed),
        (8, Self::AuthenticationTime),
        (9, Self::BandwidthRequired),
        (10, Self::CapacityExceeded),
        (11, Self::BadTraditional),
        (12, Self::BadConnections),
        (13, Self::NoSocket),
    ];

    fn of(number: u8) -> Self {
        let known = Self::NUMBERED.iter().find(|(n, _)| *n == number);
        known.map_or(Self::Unknown(number), |(_, answer)| *answer)
    }

    fn number(self) -> u8 {
        match self {
            Self::Unknown(number) => number,
            known => Self::NUMBERED
                .iter()
                .find_map(|(n, answer)| (*answer == known).then_some(*n))
                .unwrap_or_default(),
        }
    }
}

impl fmt::Display for SetupAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepts",
            Self::BadVersion => "does not speak this protocol version",
            Self::BadJumbo => "wants the other setting of jumbo datagrams",
            Self::NoAuthentication => "has no key to authenticate with",
            Self::AuthenticationRequired => {
                "asks for authentication, which farwire does not speak: it needs a server without a key"
            }
            Self::AuthenticationMode => "asks for another mode of authentication",
            Self::AuthenticationFailed => "could not authenticate the request",
            Self::AuthenticationTime => "finds the request's time too far from its own",
            Self::BandwidthRequired => {
                "wants to be told the bandwidth needed, which farwire does not know beforehand"
            }
            Self::CapacityExceeded => "has no capacity left for another test: try again later",
            Self::BadTraditional => "wants the other setting of traditional (1500 byte) datagrams",
            Self::BadConnections => "finds the connections' numbers wrong",
            Self::NoSocket => "could not open a socket for the test",
            Self::Unknown(number) => {
                return write!(f, "answers with {number}, which has no meaning");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Setup {
        Setup {
            version: 20,
            connection: 0,
            connections: 1,
            ident: 77,
            answer: None,
            port: 0,
            sizes: Sizes {
                jumbo: true,
                traditional: false,
            },
            authentication: 0,
        }
    }

    #[test]
    fn a_setup_survives_the_wire_with_every_answer() {
        for number in 0..=20 {
            let setup = Setup {
                answer: Some(SetupAnswer::of(number)),
                port: 50_000,
                ..request()
            };
            assert_eq!(setup.encode()[9], number);
            assert_eq!(Setup::decode(&setup.encode()), Ok(setup));
        }
        assert_eq!(Setup::decode(&request().encode()), Ok(request()));
    }

    #[test]
    fn a_refusal_is_in_words() {
        assert_eq!(
            SetupAnswer::of(10).to_string(),
            "has no capacity left for another test: try again later"
        );
        assert_eq!(
            SetupAnswer::of(99).to_string(),
            "answers with 99, which has no meaning"
        );
    }
}
