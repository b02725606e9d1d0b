//! The way of a frame into its link.

use std::io;
use std::sync::atomic::Ordering;

use conditions::Direction;
use model::{Bytes, Nanos, Packet, PacketId, Side};
use netio::{Frame, FrameRef, GsoFrame, Headers, Lent, Offload, PortSet, is_link_control};

use super::{ForwarderShared, LinkRunner, send};
use crate::forward::held_frames::FrameOrigin;
use crate::forward::observed::{ObservedPackets, PacketVerdict};
use crate::forward::packet_fields;
use crate::forward::stats::EmulatorLoss;

impl LinkRunner {
    /// Counts a frame that its port could not deliver.
    pub(in crate::forward) fn lose_unreadable(
        &mut self,
        arrival: Nanos,
        ingress: Side,
        cause: EmulatorLoss,
    ) {
        self.stats.lose(ingress, cause, 1);
        self.observers.decided(cause, || {
            let frame = FrameRef {
                arrival,
                offload: Offload::default(),
                vlan: None,
                bytes: &[],
            };
            ObservedPackets::whole_frame(ingress, frame, None)
        });
    }

    /// Offers a frame's packets to the link. Returns their number.
    pub(in crate::forward) fn accept<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: Frame<P::Lent>,
    ) -> u32 {
        let gso = GsoFrame::of(&frame);
        let segments = gso.as_ref().map_or(1, GsoFrame::segments);
        self.observers.arrived(ingress, &frame, segments);
        match gso {
            Ok(gso) => self.offer(shared, ingress, frame, gso),
            Err(_) => self.lose_whole(ingress, &frame, None, EmulatorLoss::UnsupportedGso),
        }
        segments
    }

    /// Drops a frame because the forwarder cannot keep up with its rings and this link has used up
    /// its share of the intake. The caller does not pass link-control frames, which are never dropped
    /// for this reason.
    #[cold]
    pub(in crate::forward) fn refuse<L: Lent>(&mut self, ingress: Side, frame: &Frame<L>) {
        let gso = GsoFrame::of(frame).ok();
        let segments = gso.as_ref().map_or(1, GsoFrame::segments);
        self.observers.arrived(ingress, frame, segments);
        self.lose_whole(ingress, frame, gso.as_ref(), EmulatorLoss::IntakeOverload);
    }

    /// Offers the packets of a frame to the link.
    fn offer<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: Frame<P::Lent>,
        gso: GsoFrame,
    ) {
        let segments = gso.segments();
        if is_link_control(frame.bytes()) {
            return self.pass(shared, ingress, &frame, &gso);
        }
        let copies = self.link.most_copies();
        if !shared.held.has_room(&frame, &gso, copies) {
            return self.lose_whole(ingress, &frame, Some(&gso), EmulatorLoss::Memory);
        }
        let arrival = frame.arrival;
        if let Some(begins) = self.begins.take() {
            begins.store(arrival.0, Ordering::Release);
        }
        let headers = Headers::of(&frame);
        let class = self.class_of(ingress, (&frame).into(), &headers);
        let origin = FrameOrigin {
            side: ingress,
            set: self.ports[ingress.index()].set,
            flow: self.stats.flows.number(headers.protocol, headers.ports),
            class,
        };
        // All segments except the last have the same length.
        let [len, last_len] = [0, segments - 1].map(|n| Bytes(gso.segment_len(n).into()));
        let first = shared.held.insert(origin, frame, gso, copies);
        for segment in 0..segments {
            let packet = Packet {
                id: PacketId(first.0 + u64::from(segment)),
                len: if segment + 1 == segments {
                    last_len
                } else {
                    len
                },
                flow: headers.flow,
                class,
                ecn: headers.ecn,
                l3_at: headers.l3_at,
            };
            let clamped = self.link.offer(arrival, ingress, packet);
            if clamped > Nanos::ZERO {
                shared.held.clamp(first, clamped);
            }
        }
    }

    /// Returns the class of a frame's packets: the number of the first rule that they match, or 0.
    fn class_of(&self, ingress: Side, frame: FrameRef<'_>, headers: &Headers) -> u16 {
        if self.rules.is_empty() {
            return 0;
        }
        let direction = match ingress {
            Side::A => Direction::Up,
            Side::B => Direction::Down,
        };
        self.rules
            .class_of(direction, &packet_fields(frame, headers))
    }

    /// Counts a frame with all its packets as lost by the emulator.
    #[cold]
    fn lose_whole<L: Lent>(
        &mut self,
        ingress: Side,
        frame: &Frame<L>,
        gso: Option<&GsoFrame>,
        cause: EmulatorLoss,
    ) {
        let packets = gso.map_or(1, GsoFrame::segments);
        self.stats.lose(ingress, cause, packets);
        self.observers
            .decided(cause, || ObservedPackets::whole_frame(ingress, frame, gso));
    }

    /// Sends a link-control frame immediately. If the other interface is down, the frame is lost as
    /// on a wire whose other end is down. That is not an error of the emulator: hosts report their
    /// multicast groups as soon as their own end is up.
    fn pass<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: &Frame<P::Lent>,
        gso: &GsoFrame,
    ) {
        self.stats.control[ingress.index()] += 1;
        let mut whole = [gso.part(frame, 0..gso.segments(), &mut shared.spare)];
        let mut sending = None;
        let (port, stats) = (self.ports[ingress.other().index()], &mut self.stats);
        send(
            &mut shared.sets,
            port,
            Nanos::ZERO,
            &mut whole,
            |_, sent| match sent {
                Ok(call) => sending = Some(call),
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) => stats.send_failed(ingress, 1, &error),
            },
        );
        whole
            .into_iter()
            .for_each(|sent| shared.spare.take_back(sent));
        self.observers
            .sent(PacketVerdict::LinkControl, sending, || {
                ObservedPackets::whole_frame(ingress, frame, Some(gso))
            });
    }
}
