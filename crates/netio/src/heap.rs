//! How much freed memory the C library's heap keeps.

/// Keeps what many short-lived threads have freed from adding up: blocks of 128 KiB and more go back to the kernel at once,
/// and all threads share two heaps.
///
/// glibc otherwise keeps a heap for each of up to eight threads a CPU, and after the first large block that is freed
/// keeps such blocks in each of them (mallopt(3), `M_MMAP_THRESHOLD`, `M_ARENA_MAX`): a server that gives each test a
/// thread and a buffer of a megabyte then grows for as long as heaps are left that have had none. Other C libraries do neither.
/// Call it before the first thread is started.
pub fn give_back_freed_blocks() {
    #[cfg(target_env = "gnu")]
    {
        const SHARED_HEAPS: libc::c_int = 2;
        const LARGE: libc::c_int = 128 * 1024;
        // SAFETY: mallopt takes two numbers and changes the allocator's own settings.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_ARENA_MAX, SHARED_HEAPS);
        }
    }
}

/// Gives whole pages that are free in the midst of the heaps back to the kernel (malloc_trim(3)): what one thread keeps at the
/// end of a heap holds all that others have freed before it, and what is held so adds up over hours. Takes well below a
/// millisecond for a heap of some megabytes; other C libraries than glibc do it by themselves, or not.
pub fn give_back_free_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
