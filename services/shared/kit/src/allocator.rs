//! The allocator of every binary that stands on the kit. A call makes dozens of small allocations, in one thread, and frees
//! them in another: what the C library is slow at.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
