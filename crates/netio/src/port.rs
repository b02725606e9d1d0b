//! What the forwarder needs of a network port.

use std::borrow::Cow;
use std::io;

use model::Nanos;

use crate::frame::{Frame, Offload};

/// A place where frames come in and go out.
pub trait Port {
    /// What this port can do; constant while it is open.
    fn capabilities(&self) -> Capabilities;

    /// Takes note of what has arrived by `now`; call once before a run of [`Port::arrival`] and [`Port::take`].
    fn refresh(&mut self, now: Nanos);

    /// The arrival of the next frame, if there is one.
    fn arrival(&mut self) -> Option<Nanos>;

    /// Takes the next frame.
    fn take(&mut self) -> Option<Received>;

    /// Sends each piece in order; calls `failed` with the index of each one that could not be sent.
    fn send(&mut self, pieces: &[Piece<'_>], failed: &mut dyn FnMut(usize, io::Error));

    /// The number ([`Frame::slot`]) of the frame taken last, 0 if frames never stay in the port's memory. While
    /// that frame does, waiting for the port ends at once: move it before sleeping.
    fn last_taken(&self) -> u64;

    /// Frames with a number below this must leave the port's memory, or what arrives is lost.
    fn keep_from(&self) -> u64;

    /// Frames that the port itself lost before they could be taken, since it was opened.
    fn missed(&mut self) -> u64;
}

/// What [`Port::take`] found.
#[derive(Debug)]
pub enum Received {
    /// A frame.
    Frame(Frame),
    /// A frame longer than the port can hold arrived and was cut short: it cannot pass.
    Truncated,
    /// A train of a kind that this program does not know: it cannot be cut.
    UnknownTrain,
}

/// What a port can do. Every port completes partial checksums by itself and puts VLAN tags apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Sends trains; without it every segment leaves by itself.
    pub gso: bool,
}

/// Bytes that leave as one frame: a head that was rewritten and the body that was not.
#[derive(Debug)]
pub struct Piece<'a> {
    /// What the kernel is to complete; offsets count from the first byte of `head`.
    pub offload: Offload,
    /// The rewritten head, possibly empty.
    pub head: Head,
    /// The rest, where it was received, or built anew.
    pub body: Cow<'a, [u8]>,
}

/// The longest head that can be rewritten: two stacks of headers with tags and options.
pub const MAX_HEAD: usize = 256;

/// Rewritten header bytes.
#[derive(Clone)]
pub struct Head {
    len: u16,
    bytes: [u8; MAX_HEAD],
}

impl Head {
    /// No bytes.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; MAX_HEAD],
    };

    /// Appends `bytes`; at most [`MAX_HEAD`] in all.
    ///
    /// # Panics
    /// When the head grows beyond [`MAX_HEAD`].
    pub fn extend(&mut self, bytes: &[u8]) {
        let end = usize::from(self.len) + bytes.len();
        self.bytes[usize::from(self.len)..end].copy_from_slice(bytes);
        self.len = u16::try_from(end).expect("MAX_HEAD fits");
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.bytes()).finish()
    }
}
