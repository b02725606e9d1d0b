//! What a TCP or UDP payload takes on each layer of an Ethernet.

/// The rates at L1, L2 and L3 of one goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layers {
    /// Payload bytes of a segment or datagram, on average.
    pub(crate) segment: f64,
    /// Bytes of IP and TCP or UDP header on it.
    pub(crate) headers: f64,
}

const IPV4: f64 = 20.0;
const IPV6: f64 = 40.0;
const TCP: f64 = 20.0;
const UDP: f64 = 8.0;
/// RFC 7323, with the padding that all stacks add.
const TIMESTAMPS: f64 = 12.0;
const ETHERNET_HEADER: f64 = 14.0;
/// Without FCS.
const LEAST_FRAME: f64 = 60.0;
/// FCS, preamble, start delimiter and the gap between frames.
const WIRE: f64 = 24.0;

impl Layers {
    /// Of segments with so many bytes of payload.
    pub(crate) fn new(segment: f64, ipv6: bool, timestamps: bool) -> Self {
        let ip = if ipv6 { IPV6 } else { IPV4 };
        let options = if timestamps { TIMESTAMPS } else { 0.0 };
        Self {
            segment,
            headers: ip + TCP + options,
        }
    }

    /// Of datagrams with so many bytes of payload, each in a packet of its own.
    pub(crate) fn of_datagrams(length: f64, ipv6: bool) -> Self {
        let ip = if ipv6 { IPV6 } else { IPV4 };
        Self {
            segment: length,
            headers: ip + UDP,
        }
    }

    /// The IP packets' rate of this goodput.
    pub(crate) fn l3(&self, goodput: f64) -> f64 {
        goodput * self.packet() / self.segment
    }

    /// The frames' rate, FCS not counted, as tc has it.
    pub(crate) fn l2(&self, goodput: f64) -> f64 {
        goodput * self.frame() / self.segment
    }

    /// The wire's rate: FCS, preamble and gap included.
    pub(crate) fn l1(&self, goodput: f64) -> f64 {
        goodput * (self.frame() + WIRE) / self.segment
    }

    fn packet(&self) -> f64 {
        self.segment + self.headers
    }

    fn frame(&self) -> f64 {
        (self.packet() + ETHERNET_HEADER).max(LEAST_FRAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_frames_of_1500_bytes_carry_what_the_formulas_say() {
        for (segment, ipv6, timestamps, share) in [
            (1448.0, false, true, 0.94148),
            (1460.0, false, false, 0.94928),
            (1428.0, true, true, 1428.0 / 1538.0),
        ] {
            let layers = Layers::new(segment, ipv6, timestamps);
            assert!((1.0 / layers.l1(1.0) - share).abs() < 1e-5);
            assert!((layers.l2(segment) - 1514.0).abs() < 1e-9);
            assert!((layers.l3(segment) - 1500.0).abs() < 1e-9);
        }
    }

    #[test]
    fn full_datagrams_carry_what_the_formulas_say() {
        let layers = Layers::of_datagrams(1472.0, false);
        assert!((1.0 / layers.l1(1.0) - 0.95709).abs() < 1e-5);
    }

    #[test]
    fn a_frame_is_never_shorter_than_64_bytes() {
        assert!((Layers::new(1.0, false, false).l1(1.0) - 84.0).abs() < 1e-9);
    }
}
