// Counts what a thread allocates: linking counted_malloc.cpp puts this program's malloc and its relatives before those
// of glibc for the whole process, preloaded libraries included. Those that bring an operator new of their own, as
// libnimble.so does, get its memory from malloc. Memory that is mapped without malloc is not counted.
//
// Any thread.
#pragma once

#include <cstdint>

namespace nimble::bench {

// Calls of this thread so far that asked for memory.
std::uint64_t allocations();

}  // namespace nimble::bench
