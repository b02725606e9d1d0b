//! Sending pieces, many a call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::vnet;
use crate::port::{MAX_HEAD, Piece};

/// Pieces a call: enough to hide its cost, few enough that the last leaves soon after the first.
const BATCH: usize = 32;

/// The headers of one call.
#[derive(Debug, Default)]
pub(super) struct Sender {
    vnet: Vec<[u8; vnet::LEN]>,
}

impl Sender {
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        pieces: &[Piece<'_>],
        failed: &mut dyn FnMut(usize, io::Error),
    ) {
        for (batch, first) in pieces.chunks(BATCH).zip((0..).step_by(BATCH)) {
            let mut done = 0;
            while done < batch.len() {
                match self.call(socket, &batch[done..]) {
                    Ok(sent) => done += sent,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => {
                        failed(first + done, e);
                        done += 1;
                    }
                }
            }
        }
    }

    /// One `sendmmsg`; how many pieces it took.
    fn call(&mut self, socket: &OwnedFd, pieces: &[Piece<'_>]) -> io::Result<usize> {
        self.vnet.clear();
        let headers = pieces.iter().map(|p| vnet::write(&p.offload, head_len(p)));
        self.vnet.extend(headers);
        let mut parts = [[EMPTY; 3]; BATCH];
        for ((part, piece), vnet) in parts.iter_mut().zip(pieces).zip(&self.vnet) {
            *part = [slice(vnet), slice(piece.head.bytes()), slice(&piece.body)];
        }
        // SAFETY: an all-zero mmsghdr is valid: no name, no control data, no parts.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            message.msg_hdr.msg_iov = part.as_mut_ptr();
            message.msg_hdr.msg_iovlen = part.len();
        }
        let count = libc::c_uint::try_from(pieces.len()).expect("at most a batch");
        // SAFETY: the first `count` messages point at parts that point at bytes borrowed for this call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

fn slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// How many bytes the kernel should keep together at the front: the headers as far as they are known.
fn head_len(piece: &Piece<'_>) -> u16 {
    let known = piece
        .offload
        .checksum
        .map_or(64, |c| usize::from(c.start) + 60);
    let len = piece.head.bytes().len() + piece.body.len();
    u16::try_from(known.min(MAX_HEAD).min(len)).expect("at most MAX_HEAD")
}
