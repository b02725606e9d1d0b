//! TCP of smoltcp behind the wire: a device for each end, and a loop that moves the time to the next event.

use std::cell::RefCell;
use std::rc::Rc;

use farwire_model::{Nanos, Side};
use rust_tests::Wire;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// An end of the wire, as a device of smoltcp.
struct WireDevice {
    wire: Rc<RefCell<Wire>>,
    side: Side,
}

struct Received(Vec<u8>);

struct Sending {
    wire: Rc<RefCell<Wire>>,
    side: Side,
    now: Nanos,
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut bytes = vec![0; len];
        let result = write(&mut bytes);
        self.wire.borrow_mut().send(self.now, self.side, bytes);
        result
    }
}

impl Device for WireDevice {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, timestamp: Instant) -> Option<(Received, Sending)> {
        let bytes = self
            .wire
            .borrow_mut()
            .receive(nanos(timestamp), self.side)?;
        Some((Received(bytes), self.transmit(timestamp)?))
    }

    fn transmit(&mut self, timestamp: Instant) -> Option<Sending> {
        Some(Sending {
            wire: Rc::clone(&self.wire),
            side: self.side,
            now: nanos(timestamp),
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities
    }
}

/// smoltcp counts microseconds.
fn nanos(at: Instant) -> Nanos {
    Nanos(u64::try_from(at.total_micros()).expect("a time after the start") * 1_000)
}

/// A host with one TCP socket.
struct Host {
    device: WireDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl Host {
    fn new(wire: &Rc<RefCell<Wire>>, side: Side, address: IpAddress) -> Self {
        let mut device = WireDevice {
            wire: Rc::clone(wire),
            side,
        };
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(address, 24))
                .expect("room for one")
        });
        Self {
            device,
            interface,
            sockets: SocketSet::new(Vec::new()),
        }
    }
}

#[test]
fn tcp_delivers_every_byte_in_spite_of_losses() {
    const PORT: u16 = 7_000;
    const SIZE: usize = 200_000;
    let wire = Rc::new(RefCell::new(Wire::new(7, "20ms", "2%")));
    let addresses = [IpAddress::v4(192, 0, 2, 1), IpAddress::v4(192, 0, 2, 2)];
    let mut client = Host::new(&wire, Side::A, addresses[0]);
    let mut server = Host::new(&wire, Side::B, addresses[1]);
    let buffer = || SocketBuffer::new(vec![0; 16_384]);
    let mut listening = Socket::new(buffer(), buffer());
    listening.listen(PORT).expect("a port");
    let reader = server.sockets.add(listening);
    let mut connecting = Socket::new(buffer(), buffer());
    connecting
        .connect(client.interface.context(), (addresses[1], PORT), 40_000)
        .expect("a connection");
    let writer = client.sockets.add(connecting);

    let (mut now, mut sent, mut received) = (Instant::ZERO, 0, Vec::new());
    while received.len() < SIZE {
        for host in [&mut client, &mut server] {
            host.interface
                .poll(now, &mut host.device, &mut host.sockets);
        }
        let socket = client.sockets.get_mut::<Socket>(writer);
        while sent < SIZE && socket.can_send() {
            sent += socket
                .send(|room| {
                    let count = room.len().min(SIZE - sent);
                    for (place, byte) in room[..count].iter_mut().zip(sent..) {
                        *place = (byte % 251) as u8;
                    }
                    (count, count)
                })
                .expect("a connection");
        }
        let socket = server.sockets.get_mut::<Socket>(reader);
        while socket.can_recv() {
            socket
                .recv(|bytes| (bytes.len(), received.extend_from_slice(bytes)))
                .expect("a connection");
        }
        // The next event is a packet's or that of a timer.
        let packet = wire
            .borrow()
            .next_at()
            .map(|at| Instant::from_micros(at.0.div_ceil(1_000) as i64));
        let timers =
            [&mut client, &mut server].map(|host| host.interface.poll_at(now, &host.sockets));
        now = timers
            .into_iter()
            .chain([packet])
            .flatten()
            .min()
            .expect("something to wait for")
            .max(now);
    }
    assert!(
        received
            .iter()
            .zip(0_usize..)
            .all(|(&byte, place)| usize::from(byte) == place % 251)
    );
    assert!(wire.borrow().lost(Side::A) > 0, "no packet was lost");
    println!(
        "{SIZE} bytes took {now} through {} losses",
        wire.borrow().lost(Side::A)
    );
}
