//! Writers for tests of the threads that write packet logs and captures.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// A writer that keeps the bytes written to it.
#[derive(Clone, Default)]
pub(super) struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

/// A writer that blocks until it is released.
pub(super) struct GatedWriter {
    written: SharedBuffer,
    open: Receiver<()>,
    entered: Sender<()>,
}

/// A disk without free space.
pub(super) struct FullDisk;

impl SharedBuffer {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl GatedWriter {
    /// Creates a gate before `written`. Also returns a sender that opens the gate when dropped, and
    /// a receiver that gets a message for every blocked write.
    pub(super) fn new(written: &SharedBuffer) -> (Self, Sender<()>, Receiver<()>) {
        let (release, open) = channel();
        let (entered, blocked) = channel();
        let written = written.clone();
        let gate = Self {
            written,
            open,
            entered,
        };
        (gate, release, blocked)
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for GatedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(());
        // The gate stays open once the sender is dropped.
        let _ = self.open.recv();
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
