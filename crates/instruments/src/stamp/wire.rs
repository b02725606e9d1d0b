//! The packets of STAMP in unauthenticated mode (RFC 8762 section 4) and their fields.

use bytes::{Buf, BufMut};
use model::Nanos;
use netio::clock::WallClock;

use crate::codec::{Wire, wire_order};

/// The length in bytes of a packet without extensions, in either direction (RFC 8762 sections 4.2.1 and 4.3.1).
pub(crate) const BASE: usize = 44;
/// The length in bytes of the shortest request. A TWAMP Light sender need not pad it (RFC 5357 section 4.1.2).
const SHORTEST_REQUEST: usize = 14;
/// The length in bytes of the shortest answer. A TWAMP Light reflector omits the last three, which are zero (RFC 5357).
pub(crate) const SHORTEST_ANSWER: usize = 41;
/// The length in bytes of the answers of some reflectors (nokia/twampy), which end with the sender's error estimate: the
/// zeros and the TTL behind it are missing.
const TRUNCATED_ANSWER: usize = 38;
/// The TTL of a request in an answer that does not know it (RFC 5357 section 4.2).
const UNKNOWN_TTL: u8 = 255;
/// The port of reflectors (RFC 8762 section 4.1).
pub(crate) const PORT: u16 = 862;

/// The seconds from 1900, where NTP's seconds begin, to 1970.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;
const SECOND_NS: u64 = 1_000_000_000;

/// The error of a clock as its owner states it (RFC 8762 section 4.2.1, from RFC 4656 section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorEstimate {
    /// S: the clock is synchronised with UTC by an external source.
    pub(crate) synchronised: bool,
    /// Z: the timestamps of this packet are in PTP's format instead of NTP's.
    pub(crate) ptp: bool,
    /// The scale, of 6 bits.
    pub(crate) scale: u8,
    /// The multiplier, which is never 0 in a valid packet. The error is multiplier x 2^(scale - 32) seconds.
    pub(crate) multiplier: u8,
}

/// A sender's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    /// The sequence number from 0, which increases by one per packet.
    pub(crate) sequence: u32,
    /// The sending time, as in the packet. A reflector returns it unchanged.
    pub(crate) sent: u64,
    /// The error of the clock that took the sending time.
    pub(crate) error: ErrorEstimate,
    /// The session of the sender (RFC 8972 section 3), or 0 if the sender does not know sessions.
    pub(crate) ssid: u16,
}

wire_order!(ProbeRequest: sequence, sent, error, ssid);

/// A reflector's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeReply {
    /// The reflector's own count from 0, or the request's number if it keeps no state (RFC 8762 section 4.3).
    pub(crate) sequence: u32,
    /// The sending time of the answer, by the clock of the reflector's program.
    pub(crate) sent: u64,
    /// The error of the clock that took the answer's times.
    pub(crate) error: ErrorEstimate,
    /// The session of the request, or 0 from a reflector that does not know sessions.
    pub(crate) ssid: u16,
    /// The arrival time of the request.
    pub(crate) received: u64,
    /// The fields of the request; the field of its session is zero here.
    pub(crate) request: ProbeRequest,
    /// TTL or hop limit of the request on arrival, or 255 if the reflector does not know it.
    pub(crate) ttl: u8,
}

wire_order!(ProbeReply: sequence, sent, error, ssid, received, request, ttl);

impl ProbeRequest {
    /// Parses a request. `None` means that `packet` is too short.
    ///
    /// A packet of less than [`BASE`] bytes is TWAMP Light's, whose padding may overlap the field of the session.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let mut base = [0; BASE];
        let length = match packet.len() {
            BASE.. => BASE,
            SHORTEST_REQUEST.. => SHORTEST_REQUEST,
            _ => return None,
        };
        base[..length].copy_from_slice(&packet[..length]);
        Some(Self::get(&mut &base[..]))
    }

    /// Returns the packet without extensions.
    pub(crate) fn emit(&self) -> [u8; BASE] {
        emit(self)
    }
}

impl ProbeReply {
    /// Parses an answer. `None` means that `packet` is too short.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        match packet.len() {
            SHORTEST_ANSWER.. => Some(Self::get(&mut &packet[..])),
            TRUNCATED_ANSWER.. => {
                let mut whole = [0; SHORTEST_ANSWER];
                whole[..packet.len()].copy_from_slice(packet);
                Some(Self {
                    ttl: UNKNOWN_TTL,
                    ..Self::get(&mut &whole[..])
                })
            }
            _ => None,
        }
    }

    /// Returns the packet without extensions.
    pub(crate) fn emit(&self) -> [u8; BASE] {
        emit(self)
    }
}

fn emit(packet: &impl Wire) -> [u8; BASE] {
    let mut base = [0; BASE];
    packet.put(&mut &mut base[..]);
    base
}

impl Wire for ErrorEstimate {
    fn put(&self, to: &mut impl BufMut) {
        to.put_u16(self.bits());
    }

    fn get(from: &mut impl Buf) -> Self {
        Self::from_bits(from.get_u16())
    }
}

impl ErrorEstimate {
    /// Returns the estimate of a clock that stamps in NTP's format.
    pub(crate) fn of(clock: WallClock) -> Self {
        let units = ntp_units(clock.largest_error.0);
        // The multiplier is rounded up, so that the stated error is never too small.
        let scale = (0..63).find(|scale| units <= 255 << scale).unwrap_or(63);
        let multiplier = units.div_ceil(1 << scale).clamp(1, 255);
        Self {
            synchronised: clock.synchronised,
            ptp: false,
            scale,
            multiplier: u8::try_from(multiplier).unwrap_or(u8::MAX),
        }
    }

    /// Decodes the two bytes of the field.
    pub(crate) fn from_bits(bits: u16) -> Self {
        let [high, multiplier] = bits.to_be_bytes();
        Self {
            synchronised: high & 0x80 != 0,
            ptp: high & 0x40 != 0,
            scale: high & 0x3f,
            multiplier,
        }
    }

    /// Encodes the two bytes of the field.
    fn bits(self) -> u16 {
        let high = u8::from(self.synchronised) << 7 | u8::from(self.ptp) << 6 | self.scale & 0x3f;
        u16::from_be_bytes([high, self.multiplier])
    }

    /// Returns the stated error in seconds.
    pub(crate) fn seconds(self) -> f64 {
        f64::from(self.multiplier) * (f64::from(self.scale) - 32.0).exp2()
    }

    /// Returns the time since 1970 of `stamp` in a packet with this estimate. NTP's seconds wrap in 2036; the result is
    /// the time nearest to `near`. `None` means a time before 1970, or invalid nanoseconds.
    pub(crate) fn time(self, stamp: u64, near: Nanos) -> Option<Nanos> {
        let (seconds, fraction) = (stamp >> 32, stamp & 0xffff_ffff);
        let (epoch, ns) = if self.ptp {
            (0, fraction)
        } else {
            (NTP_TO_UNIX_S, (fraction * SECOND_NS + (1 << 31)) >> 32)
        };
        if self.ptp && fraction >= SECOND_NS {
            return None;
        }
        let wanted = near.0 / SECOND_NS + epoch;
        // The result is the nearest number with these lower 32 bits, up to half a wrap away.
        let ahead = seconds.wrapping_sub(wanted) & 0xffff_ffff;
        let since_epoch = if ahead < 1 << 31 {
            wanted.checked_add(ahead)
        } else {
            (wanted + ahead).checked_sub(1 << 32)
        };
        let unix = since_epoch?.checked_sub(epoch)?;
        Some(Nanos(unix.checked_mul(SECOND_NS)?.checked_add(ns)?))
    }
}

/// Returns `time` (since 1970) in NTP's format: 32 bits of seconds since 1900, which wrap, and 32 bits of their
/// fraction.
pub(crate) fn ntp(time: Nanos) -> u64 {
    let seconds = time.0 / SECOND_NS + NTP_TO_UNIX_S;
    let fraction = ntp_units(time.0 % SECOND_NS);
    seconds << 32 | u64::try_from(fraction).unwrap_or(u64::from(u32::MAX))
}

/// Returns a time in units of 2^-32 s, rounded to the nearest.
fn ntp_units(ns: u64) -> u128 {
    ((u128::from(ns) << 32) + u128::from(SECOND_NS / 2)) / u128::from(SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NTP: ErrorEstimate = ErrorEstimate {
        synchronised: false,
        ptp: false,
        scale: 0,
        multiplier: 1,
    };
    const PTP: ErrorEstimate = ErrorEstimate { ptp: true, ..NTP };
    /// The start of 2024-01-01 UTC.
    const NOW: Nanos = Nanos(1_704_067_200_000_000_000);

    #[test]
    fn a_time_has_the_format_of_the_rfc() {
        // The time 2024-01-01 is 0xe93c_7f00 s after 1900.
        assert_eq!(ntp(NOW), 0xe93c_7f00 << 32);
        assert_eq!(ntp(NOW + Nanos(500_000_000)), 0xe93c_7f00_8000_0000);
        let stamp = (1_704_067_200 << 32) | 7;
        assert_eq!(PTP.time(stamp, NOW), Some(NOW + Nanos(7)));
        assert_eq!(PTP.time(SECOND_NS, NOW), None);
    }

    #[test]
    fn a_time_is_read_in_the_nearest_era() {
        // At 2036-02-07 06:28:16, NTP's seconds begin again.
        let wrap = Nanos(((1 << 32) - NTP_TO_UNIX_S) * SECOND_NS);
        assert_eq!(ntp(wrap), 0);
        assert_eq!(NTP.time(0, Nanos(wrap.0 - 1)), Some(wrap));
        assert_eq!(
            NTP.time(u64::MAX << 32, wrap),
            Some(Nanos(wrap.0 - SECOND_NS))
        );
        // A time in 1969.
        assert_eq!(NTP.time((NTP_TO_UNIX_S - 1) << 32, Nanos(0)), None);
    }

    fn stated(ns: u64) -> ErrorEstimate {
        ErrorEstimate::of(WallClock {
            synchronised: true,
            largest_error: Nanos(ns),
        })
    }

    #[test]
    fn an_error_estimate_has_the_format_of_the_rfc() {
        let estimate = stated(1_000_000);
        assert!(estimate.synchronised && !estimate.ptp);
        assert!(
            (0.001..0.001_01).contains(&estimate.seconds()),
            "{estimate:?}"
        );
        assert_eq!(stated(0).multiplier, 1);
        let seconds = ErrorEstimate::from_bits(0x8000 | 40 << 8 | 3).seconds();
        assert!((seconds - 768.0).abs() < 1e-9);
    }

    #[test]
    fn an_answer_without_its_last_three_bytes_is_read_without_a_ttl() {
        let request = ProbeRequest {
            sequence: 7,
            sent: ntp(NOW),
            error: NTP,
            ssid: 0,
        };
        let whole = ProbeReply {
            sequence: 5,
            sent: ntp(NOW) + 2,
            error: NTP,
            ssid: 0,
            received: ntp(NOW) + 1,
            request,
            ttl: 64,
        };
        let packet = whole.emit();
        assert_eq!(ProbeReply::parse(&packet[..SHORTEST_ANSWER]), Some(whole));
        let truncated = ProbeReply { ttl: 255, ..whole };
        assert_eq!(ProbeReply::parse(&packet[..38]), Some(truncated));
        assert_eq!(ProbeReply::parse(&packet[..37]), None);
    }

    proptest! {
        #[test]
        fn a_time_round_trips_to_the_nanosecond(ns in 0u64..4_000_000_000_000_000_000) {
            prop_assert_eq!(NTP.time(ntp(Nanos(ns)), Nanos(ns)), Some(Nanos(ns)));
        }

        #[test]
        fn a_stated_error_is_never_too_small(ns in 0u64..u64::MAX) {
            let stated = stated(ns).seconds();
            let error = ns as f64 / 1e9;
            prop_assert!(stated > error - 1e-9 && stated < error * 1.02 + 1e-9);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let request = ProbeRequest::parse(&bytes);
            prop_assert_eq!(request.is_some(), bytes.len() >= SHORTEST_REQUEST);
            if let Some(request) = request {
                prop_assert_eq!(ProbeRequest::parse(&request.emit()), Some(request));
                request.error.time(request.sent, NOW);
            }
            let answer = ProbeReply::parse(&bytes);
            prop_assert_eq!(answer.is_some(), bytes.len() >= TRUNCATED_ANSWER);
            if let Some(answer) = answer {
                prop_assert_eq!(ProbeReply::parse(&answer.emit()), Some(answer));
            }
        }
    }
}
