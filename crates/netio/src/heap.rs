//! Settings of the C library's heap that limit how much freed memory it keeps.

use std::time::Duration;

/// The interval at which a server that many clients use calls [`give_back_free_pages`], whether or not there was a client:
/// an event without a request, such as the end of a lease, frees memory too, and a call is cheap.
pub const FREE_PAGES_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps memory that many short-lived threads have freed from accumulating: blocks of 128 KiB and more return to the
/// kernel immediately, and all threads share two heaps.
///
/// By default, glibc has up to eight heaps per CPU, and after the first large block is freed it keeps such blocks in
/// each heap (mallopt(3), `M_MMAP_THRESHOLD`, `M_ARENA_MAX`). A server with a thread and a buffer of a megabyte per
/// test would then grow until every heap has had such a block. A box that takes many interfaces in parallel would keep
/// a heap for each thread that did. Other C libraries do neither. Call it before the first thread is started.
pub fn give_back_freed_blocks() {
    #[cfg(target_env = "gnu")]
    {
        const SHARED_HEAPS: libc::c_int = 2;
        const LARGE: libc::c_int = 128 * 1024;
        // SAFETY: mallopt takes two numbers and changes only the allocator's settings.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_ARENA_MAX, SHARED_HEAPS);
        }
    }
}

/// Returns whole free pages within the heaps to the kernel (malloc_trim(3)). Otherwise a block that one thread keeps at
/// the end of a heap holds all memory that others have freed before it, which accumulates over hours. It takes well
/// below a millisecond for a heap of some megabytes. Other C libraries than glibc do it by themselves or not at all.
pub fn give_back_free_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, and does not change allocated memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
