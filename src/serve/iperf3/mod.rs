//! iperf3's far end, for many clients at once: the cookie tells whose connection is whose.

mod datagrams;
mod desk;
mod session;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::datagrams::Datagrams;
use self::desk::Desk;
use super::shared::set_congestion;
use super::{Service, Shared};
use crate::endpoint::{self, Local};
use std::os::fd::AsFd as _;

/// Before accepting again when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the listener may wait without looking whether to end.
const LOOK_UP_MS: u8 = 100;

/// Serves on `port` of `bind`.
///
/// # Errors
/// It cannot be bound.
pub(super) fn start(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<Service> {
    let listener = endpoint::listen_tcp(bind, port)?;
    // Connections inherit it from the socket that accepts them.
    set_congestion(&socket2::SockRef::from(&listener), shared.congestion())?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let datagrams = Arc::new(Datagrams::bind(address, bind)?);
    let desk = Arc::new(Desk::new(shared, Arc::clone(&datagrams)));
    let greeting = datagrams.listen(Arc::clone(&desk.ending))?;
    let thread = thread::Builder::new()
        .name("iperf3".to_owned())
        .spawn(move || {
            accept_all(&listener, &desk);
            // A panic there was printed there.
            let _ = greeting.join();
        })?;
    Ok(Service {
        name: "iperf3",
        address,
        thread,
    })
}

fn accept_all(listener: &TcpListener, desk: &Arc<Desk>) {
    // The order of accepting is that of the client's streams, by which both ends number them.
    let mut order = 0;
    while !desk.shared.stopping() {
        let mut wait = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut wait, PollTimeout::from(LOOK_UP_MS)).is_err() {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                order += 1;
                desk.greet(stream, order);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
    desk.ending.store(true, Ordering::Relaxed);
}
