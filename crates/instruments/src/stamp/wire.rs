//! The packets of STAMP in unauthenticated mode (RFC 8762 section 4) and what stands in them.

use bytes::{Buf, BufMut};
use model::Nanos;
use netio::clock::WallClock;

use crate::codec::{Wire, wire_order};

/// Bytes of a packet without extensions, in either direction (RFC 8762 sections 4.2.1 and 4.3.1).
pub(crate) const BASE: usize = 44;
/// Bytes of the shortest request: a TWAMP Light sender need not pad it (RFC 5357 section 4.1.2).
const SHORTEST_REQUEST: usize = 14;
/// Bytes of the shortest answer: a TWAMP Light reflector leaves the last three, which are zero, away (RFC 5357).
pub(crate) const SHORTEST_ANSWER: usize = 41;
/// The port of reflectors (RFC 8762 section 4.1).
pub(crate) const PORT: u16 = 862;

/// From 1900, where NTP's seconds begin, to 1970.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;
const SECOND_NS: u64 = 1_000_000_000;

/// How good a clock is, as its owner states it (RFC 8762 section 4.2.1, from RFC 4656 section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorEstimate {
    /// S: kept in step with UTC by an external source.
    pub(crate) synchronised: bool,
    /// Z: the time stamps of this packet are in PTP's form, not in NTP's.
    pub(crate) ptp: bool,
    /// 6 bits.
    pub(crate) scale: u8,
    /// Never 0 in a packet that is as it should be; the error is this times 2^(scale - 32) seconds.
    pub(crate) multiplier: u8,
}

/// What a sender asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    /// From 0, one more a packet.
    pub(crate) sequence: u32,
    /// When it was sent, as it stands in the packet: a reflector gives it back as it came.
    pub(crate) sent: u64,
    /// How good the clock is that took that time.
    pub(crate) error: ErrorEstimate,
    /// Which of a sender's sessions it is (RFC 8972 section 3); 0 from a sender that knows of none.
    pub(crate) ssid: u16,
}

wire_order!(ProbeRequest: sequence, sent, error, ssid);

/// What a reflector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeReply {
    /// The reflector's own count from 0, or the request's when it keeps no state (RFC 8762 section 4.3).
    pub(crate) sequence: u32,
    /// When it was sent, as the reflector's program read its clock.
    pub(crate) sent: u64,
    /// How good the clock is that took the answer's times.
    pub(crate) error: ErrorEstimate,
    /// The request's; 0 from a reflector that knows of none.
    pub(crate) ssid: u16,
    /// When the request came.
    pub(crate) received: u64,
    /// What the request said; the place of its session is zero here.
    pub(crate) request: ProbeRequest,
    /// TTL or hop limit with which the request came; 255 where the reflector cannot know.
    pub(crate) ttl: u8,
}

wire_order!(ProbeReply: sequence, sent, error, ssid, received, request, ttl);

impl ProbeRequest {
    /// Out of `packet`; nothing when it is too short to be one.
    ///
    /// In one of less than [`BASE`] bytes, which is TWAMP Light's, padding may stand where a session is named.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let mut base = [0; BASE];
        let told = match packet.len() {
            BASE.. => BASE,
            SHORTEST_REQUEST.. => SHORTEST_REQUEST,
            _ => return None,
        };
        base[..told].copy_from_slice(&packet[..told]);
        Some(Self::get(&mut &base[..]))
    }

    /// As it goes onto the wire, without extensions.
    pub(crate) fn emit(&self) -> [u8; BASE] {
        emit(self)
    }
}

impl ProbeReply {
    /// Out of `packet`; nothing when it is too short to be one.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        (packet.len() >= SHORTEST_ANSWER).then(|| Self::get(&mut &packet[..]))
    }

    /// As it goes onto the wire, without extensions.
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
    /// Of a clock that stamps in NTP's form.
    pub(crate) fn of(clock: WallClock) -> Self {
        let units = ntp_units(clock.largest_error.0);
        // The multiplier is rounded up: an error is never stated too small.
        let scale = (0..63).find(|scale| units <= 255 << scale).unwrap_or(63);
        let multiplier = units.div_ceil(1 << scale).clamp(1, 255);
        Self {
            synchronised: clock.synchronised,
            ptp: false,
            scale,
            multiplier: u8::try_from(multiplier).unwrap_or(u8::MAX),
        }
    }

    /// Out of its two bytes.
    pub(crate) fn from_bits(bits: u16) -> Self {
        let [high, multiplier] = bits.to_be_bytes();
        Self {
            synchronised: high & 0x80 != 0,
            ptp: high & 0x40 != 0,
            scale: high & 0x3f,
            multiplier,
        }
    }

    /// As its two bytes.
    fn bits(self) -> u16 {
        let high = u8::from(self.synchronised) << 7 | u8::from(self.ptp) << 6 | self.scale & 0x3f;
        u16::from_be_bytes([high, self.multiplier])
    }

    /// The error that it states, in seconds.
    pub(crate) fn seconds(self) -> f64 {
        f64::from(self.multiplier) * (f64::from(self.scale) - 32.0).exp2()
    }

    /// The time since 1970 that `stamp` stands for in a packet with this estimate. NTP's seconds wrap in 2036: the
    /// time nearest to `near` is meant. Nothing for a time before 1970 and for nanoseconds that are none.
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
        // The nearest number with these lower 32 bits, half a wrap to either side.
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

/// `time` (since 1970) in NTP's form: 32 bits of seconds since 1900, which wrap, and 32 of their fraction.
pub(crate) fn ntp(time: Nanos) -> u64 {
    let seconds = time.0 / SECOND_NS + NTP_TO_UNIX_S;
    let fraction = ntp_units(time.0 % SECOND_NS);
    seconds << 32 | u64::try_from(fraction).unwrap_or(u64::from(u32::MAX))
}

/// In units of 2^-32 s, to the nearest.
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
    /// 2024-01-01.
    const NOW: Nanos = Nanos(1_704_067_200_000_000_000);

    #[test]
    fn a_time_is_where_the_rfc_puts_it() {
        // 0xe93c_7f00 s after 1900 is 2024-01-01.
        assert_eq!(ntp(NOW), 0xe93c_7f00 << 32);
        assert_eq!(ntp(NOW + Nanos(500_000_000)), 0xe93c_7f00_8000_0000);
        let stamp = (1_704_067_200 << 32) | 7;
        assert_eq!(PTP.time(stamp, NOW), Some(NOW + Nanos(7)));
        assert_eq!(PTP.time(SECOND_NS, NOW), None);
    }

    #[test]
    fn a_time_is_read_in_the_era_that_is_nearest() {
        // 2036-02-07 06:28:16: NTP's seconds begin again.
        let wrap = Nanos(((1 << 32) - NTP_TO_UNIX_S) * SECOND_NS);
        assert_eq!(ntp(wrap), 0);
        assert_eq!(NTP.time(0, Nanos(wrap.0 - 1)), Some(wrap));
        assert_eq!(
            NTP.time(u64::MAX << 32, wrap),
            Some(Nanos(wrap.0 - SECOND_NS))
        );
        // 1969.
        assert_eq!(NTP.time((NTP_TO_UNIX_S - 1) << 32, Nanos(0)), None);
    }

    fn stated(ns: u64) -> ErrorEstimate {
        ErrorEstimate::of(WallClock {
            synchronised: true,
            largest_error: Nanos(ns),
        })
    }

    #[test]
    fn an_error_is_stated_in_the_terms_of_the_rfc() {
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

    proptest! {
        #[test]
        fn a_time_survives_the_wire_to_the_nanosecond(ns in 0u64..4_000_000_000_000_000_000) {
            prop_assert_eq!(NTP.time(ntp(Nanos(ns)), Nanos(ns)), Some(Nanos(ns)));
        }

        #[test]
        fn an_error_is_never_stated_smaller_than_it_is(ns in 0u64..u64::MAX) {
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
            prop_assert_eq!(answer.is_some(), bytes.len() >= SHORTEST_ANSWER);
            if let Some(answer) = answer {
                prop_assert_eq!(ProbeReply::parse(&answer.emit()), Some(answer));
            }
        }
    }
}
