//! Writers for tests of the threads that write packet logs and captures.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// A writer that keeps the bytes written to it.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

/// A writer that blocks until it is released.
pub(super) struct Gate {
    written: Written,
    open: Receiver<()>,
    entered: Sender<()>,
}

/// A disk without free space.
pub(super) struct Full;

impl Written {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Gate {
    /// Creates a gate before `written`. Also returns a sender that opens the gate when dropped, and
    /// a receiver that gets a message for every blocked write.
    pub(super) fn new(written: &Written) -> (Self, Sender<()>, Receiver<()>) {
        let (let_go, open) = channel();
        let (entered, held_up) = channel();
        let written = written.clone();
        let gate = Self {
            written,
            open,
            entered,
        };
        (gate, let_go, held_up)
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Gate {
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

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
