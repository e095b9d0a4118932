//! How the allocator of glibc keeps memory.

/// Bytes from which on a block is memory of its own, which goes back to the system when the block is freed.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: i32 = 1 << 20;

/// Bytes by which a heap grows beyond what is needed, and which it keeps at its end. Channels reserve space for many messages
/// and seldom fill it: on pages that are new to the heap such space takes no memory.
#[cfg(target_env = "gnu")]
const SPACE_AT_END: i32 = 16 << 10;

/// Makes the allocator of glibc give memory back to the system, which matters where many sessions are idle. By itself it
/// stops giving back large blocks once one was freed, and keeps 128 KiB at the end of the heap of each thread. See
/// `mallopt(3)`.
#[cfg(target_env = "gnu")]
pub(super) fn give_back() {
    /// The numbers of `M_MMAP_THRESHOLD` and `M_TOP_PAD` in `<malloc.h>`.
    const MMAP_THRESHOLD: i32 = -3;
    const TOP_PAD: i32 = -2;
    #[expect(unsafe_code, reason = "mallopt is a function of C")]
    mod c {
        unsafe extern "C" {
            pub(super) safe fn mallopt(parameter: i32, value: i32) -> i32;
        }
    }
    c::mallopt(MMAP_THRESHOLD, LARGE_BLOCK);
    c::mallopt(TOP_PAD, SPACE_AT_END);
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn give_back() {}
