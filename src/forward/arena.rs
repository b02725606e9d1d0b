//! Memory for the bytes of small frames. Frames are stored one after the other in chunks; a chunk
//! is free again when all its frames are gone.
//!
//! Frames leave a link in about the order of their arrivals, so chunks become empty one after the
//! other.

/// The size of a chunk in bytes. It is small, so that one frame that stays long blocks little
/// memory.
const CHUNK: usize = 64 << 10;

/// The number of empty chunks that are kept for later: 16 MiB.
const MOST_EMPTY: usize = 256;

/// A bump allocator that stores no headers.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// The chunk that is being filled, if any, and the offset of its free part.
    filling: Option<u32>,
    end: usize,
    /// The chunks without frames: those that keep their memory, and those that do not.
    empty: Vec<u32>,
    without_memory: Vec<u32>,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Box<[u8]>,
    /// The number of frames in the chunk.
    frames: u32,
}

/// A frame's place in an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    chunk: u32,
    at: u32,
    len: u32,
}

impl Arena {
    /// Copies `bytes`, which must fit into a chunk, and returns their place.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Span {
        let number = match self.filling {
            Some(number) if self.end + bytes.len() <= CHUNK => number,
            _ => self.next_chunk(),
        };
        let chunk = &mut self.chunks[number as usize];
        chunk.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        chunk.frames += 1;
        let small = |n: usize| u32::try_from(n).expect("at most a chunk");
        let span = Span {
            chunk: number,
            at: small(self.end),
            len: small(bytes.len()),
        };
        self.end += bytes.len();
        span
    }

    /// Returns the bytes stored at `span`.
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        let chunk = &self.chunks[span.chunk as usize];
        &chunk.bytes[span.at as usize..][..span.len as usize]
    }

    /// Frees a span. Each span is freed exactly once.
    pub(crate) fn release(&mut self, span: Span) {
        let chunk = &mut self.chunks[span.chunk as usize];
        chunk.frames -= 1;
        if chunk.frames > 0 {
            return;
        }
        if self.filling == Some(span.chunk) {
            self.end = 0;
        } else if self.empty.len() < MOST_EMPTY {
            self.empty.push(span.chunk);
        } else {
            chunk.bytes = Box::default();
            self.without_memory.push(span.chunk);
        }
    }

    /// Returns the size of all chunks that have frames, in bytes.
    pub(crate) fn held(&self) -> usize {
        (self.chunks.len() - self.empty.len() - self.without_memory.len()) * CHUNK
    }

    /// Returns [`Arena::held`] as it would be after storing `len` more bytes.
    pub(crate) fn held_with(&self, len: usize) -> usize {
        let fits = self.filling.is_some() && self.end + len <= CHUNK;
        self.held() + if fits { 0 } else { CHUNK }
    }

    #[cold]
    fn next_chunk(&mut self) -> u32 {
        let number = self
            .empty
            .pop()
            .or_else(|| self.without_memory.pop())
            .unwrap_or_else(|| {
                self.chunks.push(Chunk::default());
                u32::try_from(self.chunks.len() - 1).expect("below 256 TiB")
            });
        let chunk = &mut self.chunks[number as usize];
        if chunk.bytes.is_empty() {
            chunk.bytes = vec![0; CHUNK].into();
        }
        (self.filling, self.end) = (Some(number), 0);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stored_bytes_stay_until_they_are_released(
            ops in prop::collection::vec((any::<bool>(), 1usize..4096, any::<u8>(), any::<prop::sample::Index>()), 1..600),
        ) {
            let mut arena = Arena::default();
            let mut stored: Vec<(Span, Vec<u8>)> = Vec::new();
            for (stores, len, fill, which) in ops {
                if stores || stored.is_empty() {
                    let bytes = vec![fill; len];
                    stored.push((arena.store(&bytes), bytes));
                } else {
                    let (span, bytes) = stored.swap_remove(which.index(stored.len()));
                    prop_assert_eq!(arena.bytes(span), &bytes[..]);
                    arena.release(span);
                }
                for (span, bytes) in &stored {
                    prop_assert_eq!(arena.bytes(*span), &bytes[..]);
                }
            }
        }
    }

    #[test]
    fn frames_that_leave_in_order_free_their_memory() {
        let mut arena = Arena::default();
        let mut waiting = std::collections::VecDeque::new();
        for _ in 0..100_000 {
            waiting.push_back(arena.store(&[1; 64]));
            if waiting.len() > 10_000 {
                arena.release(waiting.pop_front().unwrap());
            }
        }
        // 10,000 frames of 64 bytes fill ten chunks. The first and the last of them may be partly
        // filled.
        assert!(arena.held() <= 12 * CHUNK, "{}", arena.held());
        waiting.into_iter().for_each(|span| arena.release(span));
        assert!(arena.held() <= CHUNK);
    }

    #[test]
    fn chunks_beyond_the_kept_ones_lose_their_memory() {
        let mut arena = Arena::default();
        let spans: Vec<Span> = (0..1000).map(|_| arena.store(&[1; CHUNK])).collect();
        assert_eq!(arena.held(), 1000 * CHUNK);
        spans.into_iter().for_each(|span| arena.release(span));
        let with_memory = arena.chunks.iter().filter(|chunk| !chunk.bytes.is_empty());
        assert_eq!(with_memory.count(), MOST_EMPTY + 1);
    }
}
