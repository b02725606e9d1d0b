//! The table of sending rates that both ends know by the indexes of its rows (TR-471, and obudpst's `-S`).
//!
//! Up to 1 Gbit/s, row N is N Mbit/s at L3 over IPv4: full-sized datagrams, and one more datagram per millisecond with
//! the size of the remainder. Above, each row adds one datagram per burst, or has larger datagrams if jumbo sizes are
//! agreed.

use super::wire::{RANDOM_SIZE, SendingRate, Sizes, Transmitter};

const ROWS: usize = 1153;
/// The row of 1 Gbit/s, up to which fast steps are allowed.
pub(super) const HIGH_SPEED_ROW: usize = 1000;
const FAST_US: u32 = 100;
const SLOW_US: u32 = 1_000;
/// The time in which row 0 keeps the path open with one datagram of random size.
const IDLE_US: u32 = 50_000;
/// The bytes of a UDP header and an IPv4 header.
const HEADERS: u32 = 8 + 20;
/// The bytes by which an IPv6 header is longer than an IPv4 header. Payloads shrink by it, so that IP packets keep
/// their size.
const LONGER_HEADER: u32 = 20;
const STANDARD_PACKET: u32 = 1250;
const TRADITIONAL_PACKET: u32 = 1500;
const JUMBO_PACKET: u32 = 9000;
/// The bytes by which an IP packet grows from row to row above 1 Gbit/s, which is 1 Mbit/s at one datagram per
/// millisecond.
const STEP: u32 = 125;
const LARGEST_BURST: u32 = 100;
/// The least payload that can shrink for IPv6: a load header plus the additional header bytes.
const SMALLEST_PAYLOAD: u32 = 32 + LONGER_HEADER;

/// The rows, slowest first.
#[derive(Clone, Debug)]
pub(crate) struct RateTable {
    rows: Vec<SendingRate>,
}

impl RateTable {
    /// Returns the table that both ends use with these sizes.
    pub(crate) fn new(sizes: Sizes) -> Self {
        let (packet, addons) = if sizes.traditional {
            (TRADITIONAL_PACKET, 11)
        } else {
            (STANDARD_PACKET, 9)
        };
        let mut rows: Vec<_> = (0..=HIGH_SPEED_ROW)
            .map(|row| up_to_a_gigabit(row, packet - HEADERS, addons + 1))
            .collect();
        let (largest, next_burst) = if sizes.jumbo {
            let grown = (STANDARD_PACKET + STEP..=JUMBO_PACKET).step_by(STEP as usize);
            rows.extend(grown.map(|packet| each_fast_interval(packet - HEADERS, 10)));
            (JUMBO_PACKET, 11)
        } else if sizes.traditional {
            (TRADITIONAL_PACKET, 9)
        } else {
            (STANDARD_PACKET, 11)
        };
        let bursts = (next_burst..).map(|burst| burst.min(LARGEST_BURST));
        rows.extend(
            bursts
                .map(|burst| each_fast_interval(largest - HEADERS, burst))
                .take(ROWS - rows.len()),
        );
        Self { rows }
    }

    /// Returns the rate of `row`, or that of the last row if `row` is beyond the table.
    pub(crate) fn rate(&self, row: usize) -> SendingRate {
        self.rows[row.min(self.last())]
    }

    /// Returns the index of the fastest row.
    pub(crate) fn last(&self) -> usize {
        self.rows.len() - 1
    }

    /// Returns the row with this rate, if there is one.
    pub(crate) fn row_of(&self, rate: &SendingRate) -> Option<usize> {
        self.rows.iter().position(|row| row == rate)
    }
}

fn up_to_a_gigabit(row: usize, payload: u32, rows_a_datagram: usize) -> SendingRate {
    if row == 0 {
        let second = Transmitter {
            interval_us: IDLE_US,
            addon: payload | RANDOM_SIZE,
            ..Transmitter::default()
        };
        return SendingRate {
            second,
            ..SendingRate::default()
        };
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (datagrams, rest) = (row / rows_a_datagram, count(row % rows_a_datagram));
    let (fast, slow) = (count(datagrams / 10), count(datagrams % 10));
    let second = Transmitter {
        interval_us: if slow > 0 || rest > 0 { SLOW_US } else { 0 },
        payload: if slow > 0 { payload } else { 0 },
        burst: slow,
        addon: if rest > 0 { rest * STEP - HEADERS } else { 0 },
    };
    let first = match fast {
        0 => Transmitter::default(),
        burst => each_fast_interval(payload, burst).first,
    };
    SendingRate { first, second }
}

fn each_fast_interval(payload: u32, burst: u32) -> SendingRate {
    SendingRate {
        first: Transmitter {
            interval_us: FAST_US,
            payload,
            burst,
            addon: 0,
        },
        second: Transmitter::default(),
    }
}

impl SendingRate {
    /// Returns the rate at L3 in bit/s, which is the same over IPv4 and IPv6. Random sizes count with their mean.
    pub(crate) fn l3_bit_per_s(&self) -> f64 {
        [self.first, self.second]
            .iter()
            .filter(|transmitter| transmitter.interval_us > 0)
            .map(|t| {
                let burst = f64::from(t.burst) * l3_bytes(t.payload);
                let addon = if t.addon == 0 { 0.0 } else { l3_bytes(t.addon) };
                (burst + addon) * 8e6 / f64::from(t.interval_us)
            })
            .sum()
    }
}

fn l3_bytes(payload: u32) -> f64 {
    let size = f64::from(payload & !RANDOM_SIZE);
    let mean = if payload & RANDOM_SIZE == 0 {
        size
    } else {
        f64::midpoint(f64::from(SMALLEST_PAYLOAD), size)
    };
    mean + f64::from(HEADERS)
}

/// Returns the UDP payload to send for a rate's `size`, with its random part drawn. It is at least a load header, and
/// at most a jumbo datagram.
pub(crate) fn payload_to_send(size: u32, ipv6: bool) -> usize {
    let shorter = |size: u32| {
        if ipv6 && size >= SMALLEST_PAYLOAD {
            size - LONGER_HEADER
        } else {
            size
        }
    };
    let largest = shorter(size & !RANDOM_SIZE).min(JUMBO_PACKET - HEADERS);
    let smallest = shorter(SMALLEST_PAYLOAD);
    let drawn = if size & RANDOM_SIZE != 0 && largest > smallest {
        fastrand::u32(smallest..=largest)
    } else {
        largest
    };
    drawn.max(SMALLEST_PAYLOAD - LONGER_HEADER) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Sizes; 4] = [
        Sizes {
            jumbo: false,
            traditional: false,
        },
        Sizes {
            jumbo: true,
            traditional: false,
        },
        Sizes {
            jumbo: false,
            traditional: true,
        },
        Sizes {
            jumbo: true,
            traditional: true,
        },
    ];

    fn mbit(table: &RateTable, row: usize) -> f64 {
        table.rate(row).l3_bit_per_s() / 1e6
    }

    #[test]
    fn row_n_is_n_mbit_at_l3_up_to_a_gigabit() {
        for sizes in ALL {
            let table = RateTable::new(sizes);
            for row in 1..=1000 {
                assert!(
                    (mbit(&table, row) - row as f64).abs() < 1e-6,
                    "{sizes:?} row {row}"
                );
            }
        }
    }

    #[test]
    fn a_faster_row_never_sends_less() {
        for sizes in ALL {
            let table = RateTable::new(sizes);
            assert_eq!(table.last(), 1152);
            for row in 2..=table.last() {
                // As in the reference, traditional jumbo sizes step back once, at 1 Gbit/s.
                assert!(
                    mbit(&table, row) >= mbit(&table, row - 1) - 1e-6,
                    "{sizes:?} row {row}"
                );
            }
        }
    }

    #[test]
    fn rows_equal_those_of_the_reference() {
        // Rows 237 and 1152 of the output of udpst 9.0.0 -S -j.
        let table = RateTable::new(ALL[0]);
        let row = table.rate(237);
        assert_eq!(row.first.interval_us, 100);
        assert_eq!(row.first.payload, 1222);
        assert_eq!(row.first.burst, 2);
        assert_eq!((row.second.interval_us, row.second.payload), (1000, 1222));
        assert_eq!((row.second.burst, row.second.addon), (3, 847));
        assert_eq!(table.rate(1152).first.burst, 100);
        // In the output of udpst 9.0.0 -S, row 1001 is the first jumbo row.
        assert_eq!(RateTable::new(ALL[1]).rate(1001).first.payload, 1347);
    }

    #[test]
    fn ipv6_payloads_keep_the_packet_size() {
        assert_eq!(payload_to_send(1222, false), 1222);
        assert_eq!(payload_to_send(1222, true), 1202);
    }

    #[test]
    fn absurd_payloads_are_limited_to_valid_datagrams() {
        for size in [0, 1, RANDOM_SIZE, u32::MAX, !RANDOM_SIZE] {
            for ipv6 in [false, true] {
                assert!((32..=8972).contains(&payload_to_send(size, ipv6)));
            }
        }
    }

    #[test]
    fn a_row_is_found_by_its_rate() {
        let table = RateTable::new(ALL[0]);
        assert_eq!(table.row_of(&table.rate(431)), Some(431));
        assert_eq!(table.row_of(&SendingRate::default()), None);
    }
}
