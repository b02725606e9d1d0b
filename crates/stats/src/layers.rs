//! What a payload takes on each layer of an Ethernet; all sizes are in bytes.

/// Of UDP.
pub const UDP_HEADER: u32 = 8;
/// Without FCS.
pub const ETHERNET_HEADER: u32 = 14;
/// What the wire carries beside a frame: FCS, preamble, start delimiter and the gap between frames.
pub const WIRE: u32 = 4 + 8 + 12;
const TCP_HEADER: u32 = 20;
/// RFC 7323, with the padding that all stacks add.
const TIMESTAMPS: u32 = 12;
/// Without FCS.
const LEAST_FRAME: f64 = 60.0;

/// The IP header, without options.
pub fn ip_header(ipv6: bool) -> u32 {
    if ipv6 { 40 } else { 20 }
}

/// The rates at L1, L2 and L3 of one goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layers {
    /// Payload bytes of a segment or datagram, on average.
    pub segment: f64,
    /// Bytes of IP and TCP or UDP header on it.
    pub headers: f64,
}

impl Layers {
    /// Of segments with so many bytes of payload.
    pub fn new(segment: f64, ipv6: bool, timestamps: bool) -> Self {
        let options = if timestamps { TIMESTAMPS } else { 0 };
        Self {
            segment,
            headers: f64::from(ip_header(ipv6) + TCP_HEADER + options),
        }
    }

    /// Of datagrams with so many bytes of payload, each in a packet of its own.
    pub fn of_datagrams(length: f64, ipv6: bool) -> Self {
        Self {
            segment: length,
            headers: f64::from(ip_header(ipv6) + UDP_HEADER),
        }
    }

    /// The IP packets' rate of this goodput.
    pub fn l3(&self, goodput: f64) -> f64 {
        goodput * self.packet() / self.segment
    }

    /// The frames' rate, FCS not counted, as tc has it.
    pub fn l2(&self, goodput: f64) -> f64 {
        goodput * self.frame() / self.segment
    }

    /// The wire's rate: FCS, preamble and gap included.
    pub fn l1(&self, goodput: f64) -> f64 {
        goodput * (self.frame() + f64::from(WIRE)) / self.segment
    }

    fn packet(&self) -> f64 {
        self.segment + self.headers
    }

    fn frame(&self) -> f64 {
        (self.packet() + f64::from(ETHERNET_HEADER)).max(LEAST_FRAME)
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
