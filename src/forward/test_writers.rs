//! Writers for the tests of the threads that write packet logs and captures.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Keeps the bytes that are written.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

/// Holds a writer up until it is let go.
pub(super) struct Gate {
    written: Written,
    open: Receiver<()>,
    entered: Sender<()>,
}

/// A disk without room.
pub(super) struct Full;

impl Written {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Gate {
    /// A gate before `written`, the end to drop so that it opens, and word of every write that it holds up.
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
        // It stays open once the other end is gone.
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
