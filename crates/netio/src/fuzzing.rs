//! The parsers of bytes from the wire and from the kernel, as functions that fuzzers call. None of them panics for any
//! bytes.

use model::Nanos;

use crate::af_packet::virtio_header;
use crate::{
    FiveTuple, Frame, GsoFrame, Headers, ProbeReply, ProbeRequest, Spare, Vlan, icmp, iface,
    ingress_drop, is_link_control, redirect,
};

/// Largest number of segments of a frame that is tested.
const MOST_SEGMENTS: u32 = 64;

/// Parses a frame as a packet socket passes it: the ten bytes of its `struct virtio_net_hdr`, one byte that says
/// whether a VLAN tag was removed, and the frame. The frame's headers are read, it is divided into parts, and every
/// part is assembled again.
pub fn frames(bytes: &[u8]) {
    let Some((header, [tagged, bytes @ ..])) = bytes.split_first_chunk() else {
        return;
    };
    let Some(offload) = virtio_header(*header) else {
        return;
    };
    let vlan = (*tagged != 0).then_some(Vlan {
        tpid: 0x8100,
        tci: u16::from(*tagged),
    });
    let frame: Frame = Frame::new(Nanos::ZERO, offload, vlan, bytes);
    let _ = (
        FiveTuple::of(bytes),
        Headers::of(&frame),
        is_link_control(bytes),
    );
    let _ = (
        ProbeRequest::of((&frame).into()),
        ProbeReply::of((&frame).into()),
    );
    let _ = icmp::too_big(bytes, 1280);
    let Ok(gso) = GsoFrame::of(&frame) else {
        return;
    };
    for first in 0..gso.segments().min(MOST_SEGMENTS) {
        let end = (first + gso.longest_run()).min(gso.segments());
        for run in [first..first + 1, first..end] {
            let longest = run.clone().map(|segment| gso.segment_len(segment)).sum();
            let single = run.len() == 1;
            let spare = &mut Spare::default();
            let train = gso.train(&frame, run.clone(), spare);
            let mut part = gso.part(&frame, run, spare);
            for frame in [&part, &train] {
                let length = u32::try_from(frame.head.bytes().len() + frame.body.len());
                assert!(
                    length.is_ok_and(|length| length <= longest),
                    "a part is longer than its segments"
                );
            }
            if single {
                part.complete_checksum();
            }
        }
    }
}

/// Parses the kernel's answers over netlink: notifications of rtnetlink's link group, answers to an nftables batch, and
/// the counters of a redirection.
pub fn netlink(bytes: &[u8]) {
    let _ = iface::changes_in(bytes);
    let _ = ingress_drop::refusal_in(bytes);
    let _ = ingress_drop::add_tables(bytes, &mut Vec::new());
    let _ = redirect::refused_in(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    /// A TCP frame over IPv4 with three segments of 100 bytes and a partial checksum, after its virtio header.
    fn frame() -> Vec<u8> {
        let mut bytes = vec![1, 1, 0, 0, 100, 0, 34, 0, 16, 0, 0];
        bytes.extend([2; 12]);
        bytes.extend([8, 0, 0x45, 0, 1, 84, 0, 1, 0, 0, 64, 6, 0, 0]);
        bytes.extend([10, 77, 0, 1, 10, 77, 0, 2, 0x30, 0x39, 0x14, 0x51]);
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.extend([7; 300]);
        bytes
    }

    /// An acknowledgement and a refusal of the second message of a batch.
    fn answers() -> Vec<u8> {
        let answer = |sequence: u32, error: i32| {
            let mut words = vec![36, 2, sequence, 0, error.cast_unsigned()];
            words.extend([0; 4]);
            words.into_iter().flat_map(u32::to_ne_bytes)
        };
        answer(3, 0).chain(answer(4, -1)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 10 } else { 500 },
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn readers_do_not_panic_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            frames(&bytes);
            netlink(&bytes);
        }

        #[test]
        fn readers_do_not_panic_on_changed_messages(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            whole in any::<bool>(),
        ) {
            for (read, mut bytes) in [(frames as fn(&[u8]), frame()), (netlink, answers())] {
                for (at, byte) in &changes {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                if !whole {
                    bytes.truncate(cut.index(bytes.len()));
                }
                read(&bytes);
            }
        }
    }

    #[test]
    fn a_checksum_start_after_the_frame_does_not_panic() {
        let mut bytes = frame();
        (bytes[1], bytes[10]) = (0, 1);
        bytes[6..10].fill(0xff);
        frames(&bytes);
    }

    #[test]
    fn the_unchanged_messages_are_valid() {
        let bytes = frame();
        let offload = virtio_header(*bytes.first_chunk().unwrap()).unwrap();
        let frame: Frame = Frame::new(Nanos::ZERO, offload, None, &bytes[11..]);
        assert_eq!(GsoFrame::of(&frame).unwrap().segments(), 3);
        let (step, error) = ingress_drop::refusal_in(&answers()).unwrap_err();
        assert_eq!(step, "adding an nftables ingress chain");
        assert_eq!(error.raw_os_error(), Some(1));
    }
}
