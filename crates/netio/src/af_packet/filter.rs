//! Selects the frames that a packet socket receives. The kernel skips all others before they use a slot.
//!
//! The filter is a program of the classic packet filter (linux/filter.h, Documentation/networking/filter.rst). It
//! checks the length first, and then finds the number of the interface by binary search among ranges of consecutive
//! numbers.

use std::io;
use std::os::fd::OwnedFd;

use crate::socket_option;

/// The frames that a socket receives, by their length.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameLengths {
    /// Frames of up to this many bytes, not counting VLAN tags that the kernel removed.
    UpTo(usize),
    /// Frames of more than this many bytes.
    Above(usize),
}

/// Attaches a filter to `socket` for frames of these lengths from the interfaces in `ranges`, which are in ascending
/// order; without any, frames from all interfaces are received.
pub(super) fn attach(
    socket: &OwnedFd,
    takes: FrameLengths,
    ranges: &[(libc::c_int, libc::c_int)],
) -> io::Result<()> {
    let mut program = program(takes, ranges)?;
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Greatest number of ranges in a program. Each takes six of at most 4,096 instructions (`BPF_MAXINSNS`).
const MOST_RANGES: usize = 680;
/// Return values of the program: the whole frame, or nothing of it.
const WHOLE_FRAME: u32 = u32::MAX;
const NOTHING: u32 = 0;
/// Offset at which a program finds the number of the interface (`SKF_AD_OFF + SKF_AD_IFINDEX`).
const INTERFACE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX).cast_unsigned();

fn program(
    takes: FrameLengths,
    ranges: &[(libc::c_int, libc::c_int)],
) -> io::Result<Vec<libc::sock_filter>> {
    let (longest, [jt, jf]) = match takes {
        FrameLengths::UpTo(longest) => (longest, [0, 1]),
        FrameLengths::Above(longest) => (longest, [1, 0]),
    };
    let longest = u32::try_from(longest).map_err(io::Error::other)?;
    let mut program = vec![
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, [0, 0], 0),
        line(JUMP_IF_ABOVE, [jt, jf], longest),
        line(libc::BPF_RET | libc::BPF_K, [0, 0], NOTHING),
    ];
    if ranges.is_empty() {
        program.push(line(libc::BPF_RET | libc::BPF_K, [0, 0], WHOLE_FRAME));
    } else {
        program.push(line(LOAD_WORD, [0, 0], INTERFACE));
        search(&merged(ranges), &mut program);
    }
    Ok(program)
}

const JUMP_IF_ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const JUMP_FROM: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;

/// Appends a binary search for the loaded number in `ranges`, which must not be empty.
fn search(ranges: &[(u32, u32)], program: &mut Vec<libc::sock_filter>) {
    let ret = |what| line(libc::BPF_RET | libc::BPF_K, [0, 0], what);
    if let [(first, last)] = *ranges {
        program.extend([
            line(JUMP_FROM, [0, 1], first),
            line(JUMP_IF_ABOVE, [0, 1], last),
            ret(NOTHING),
            ret(WHOLE_FRAME),
        ]);
        return;
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    program.push(line(JUMP_FROM, [0, 1], upper[0].0));
    let far_jump = program.len();
    program.push(line(libc::BPF_JMP | libc::BPF_JA, [0, 0], 0));
    search(lower, program);
    program[far_jump].k = u32::try_from(program.len() - far_jump - 1).expect("a short program");
    search(upper, program);
}

/// Closes the smallest gaps between ranges, and no more of them than necessary, until a program has room for the ranges.
/// Frames of interfaces in between belong to no port: they fill the ring and are dropped when they are read.
fn merged(ranges: &[(libc::c_int, libc::c_int)]) -> Vec<(u32, u32)> {
    let too_many = ranges.len().saturating_sub(MOST_RANGES);
    // Each gap is named by the range above it.
    let mut gaps: Vec<usize> = (1..ranges.len()).collect();
    gaps.sort_by_key(|above| ranges[*above].0 - ranges[*above - 1].1);
    let mut is_closed = vec![false; ranges.len()];
    for above in gaps.into_iter().take(too_many) {
        is_closed[above] = true;
    }
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for ((first, last), is_closed) in ranges.iter().zip(is_closed) {
        match merged.last_mut() {
            Some((_, end)) if is_closed => *end = last.cast_unsigned(),
            _ => merged.push((first.cast_unsigned(), last.cast_unsigned())),
        }
    }
    merged
}

fn line(code: u32, [jt, jf]: [u8; 2], k: u32) -> libc::sock_filter {
    let code = u16::try_from(code).expect("opcodes have 16 bits");
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the kernel would pass a frame of this length from this interface.
    fn takes(program: &[libc::sock_filter], len: u32, interface: i32) -> bool {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            let code = u32::from(code);
            let jump = |is| usize::from(if is { jt } else { jf });
            at += 1;
            match code {
                LOAD_WORD => loaded = interface.cast_unsigned(),
                JUMP_FROM => at += jump(loaded >= k),
                JUMP_IF_ABOVE => at += jump(loaded > k),
                _ if code == libc::BPF_LD | libc::BPF_W | libc::BPF_LEN => loaded = len,
                _ if code == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
                _ => return k == WHOLE_FRAME,
            }
        }
    }

    #[test]
    fn frames_are_taken_by_length_and_interface() {
        for count in [1, 2, 3, 10, 680] {
            let ranges: Vec<_> = (0..count).map(|n| n * 5 + 7).map(|n| (n, n + 2)).collect();
            let small = program(FrameLengths::UpTo(1920), &ranges).unwrap();
            let large = program(FrameLengths::Above(1920), &ranges).unwrap();
            assert!(large.len() <= 4096, "{}", large.len());
            for interface in 0..=count * 5 + 10 {
                let ours = ranges.iter().any(|(a, b)| (*a..=*b).contains(&interface));
                assert_eq!(
                    takes(&small, 1920, interface),
                    ours,
                    "{interface} of {count}"
                );
                assert_eq!(takes(&large, 1921, interface), ours);
                assert!(!takes(&small, 1921, interface) && !takes(&large, 1920, interface));
            }
        }
        assert!(takes(
            &program(FrameLengths::UpTo(1920), &[]).unwrap(),
            60,
            3
        ));
    }

    #[test]
    fn no_more_gaps_are_closed_than_necessary_and_no_interface_is_lost() {
        let ranges: Vec<_> = (1..=2000).map(|n| (n * 3, n * 3)).collect();
        let program = program(FrameLengths::UpTo(1920), &ranges).unwrap();
        assert!(program.len() <= 4096, "{}", program.len());
        assert!(ranges.iter().all(|(n, _)| takes(&program, 60, *n)));
        let foreign = (1..=2000).map(|n| n * 3 + 1);
        let closed = foreign.filter(|n| takes(&program, 60, *n)).count();
        assert_eq!(closed, 2000 - MOST_RANGES);
    }
}
