//! How the allocator treats large blocks.

/// Bytes from which on a block is memory of its own, which goes back to the system when the block is freed.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: i32 = 1 << 20;

/// Makes the allocator of glibc give back large blocks for ever. By itself it stops that once such a block was freed, and
/// then keeps the space of large messages in the heap of each thread.
#[cfg(target_env = "gnu")]
pub(super) fn return_large_blocks() {
    /// The number of `M_MMAP_THRESHOLD` in `<malloc.h>`.
    const MMAP_THRESHOLD: i32 = -3;
    #[expect(unsafe_code, reason = "mallopt is a function of C")]
    mod c {
        unsafe extern "C" {
            pub(super) safe fn mallopt(parameter: i32, value: i32) -> i32;
        }
    }
    c::mallopt(MMAP_THRESHOLD, LARGE_BLOCK);
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn return_large_blocks() {}
