//! The options of a test's sockets.

use std::net::{IpAddr, SocketAddr, TcpStream};

use anyhow::{Context, Result};
use socket2::{SockRef, Socket};

use super::super::plan::Plan;

/// What a plan asks of each data socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a>(pub(crate) &'a Plan);

/// When options can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Before connecting: everything takes effect.
    Connects,
    /// On an accepted connection: the client's handshake has fixed the MSS, and the scale of the windows.
    Accepted,
}

impl Options<'_> {
    /// Sets them on a socket of the client before it connects to `peer`.
    ///
    /// # Errors
    /// The system refuses one; says which.
    pub(crate) fn before_connecting(self, socket: &Socket, peer: SocketAddr) -> Result<()> {
        self.set(SockRef::from(socket), peer, Role::Connects)
    }

    /// Sets them on a socket that the server has accepted.
    ///
    /// # Errors
    /// The system refuses one; says which.
    pub(crate) fn after_accepting(self, socket: &TcpStream) -> Result<()> {
        let peer = socket.peer_addr()?;
        self.set(SockRef::from(socket), peer, Role::Accepted)
    }

    fn set(self, socket: SockRef<'_>, peer: SocketAddr, role: Role) -> Result<()> {
        let plan = self.0;
        if let Some(name) = &plan.congestion {
            socket
                .set_tcp_congestion(name.as_bytes())
                .with_context(|| format!("TCP congestion control `{name}` cannot be set here"))?;
        }
        if let (Some(mss), Role::Connects) = (plan.mss, role) {
            socket
                .set_tcp_mss(mss)
                .with_context(|| format!("an MSS of {mss} cannot be set"))?;
        }
        if let Some(window) = plan.window {
            let window = window as usize;
            socket
                .set_send_buffer_size(window)
                .and_then(|()| socket.set_recv_buffer_size(window))
                .with_context(|| format!("a window of {window} bytes cannot be set"))?;
        }
        if plan.no_delay {
            socket.set_tcp_nodelay(true)?;
        }
        if let Some(tos) = plan.tos {
            set_tos(&socket, peer.ip(), tos)
                .with_context(|| format!("a type of service of {tos:#04x} cannot be set"))?;
        }
        Ok(())
    }
}

/// Sets the byte for what goes to `peer`, on a socket of either IP version.
///
/// # Errors
/// The system refuses it.
pub(crate) fn set_tos(socket: &SockRef<'_>, peer: IpAddr, tos: u8) -> std::io::Result<()> {
    match peer.to_canonical() {
        IpAddr::V4(_) => socket.set_tos_v4(tos.into()),
        IpAddr::V6(_) => socket.set_tclass_v6(tos.into()),
    }
}
