//! Global allocator of every binary that links the kit: mimalloc. A call makes dozens of small allocations on one thread
//! and frees them on another, which is slow with the allocator of the C library.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
