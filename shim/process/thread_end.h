// Calls back when the calling thread ends.
//
// Not by a thread-local object with a destructor: its registration allocates, and glibc ends the process where it
// cannot. All callers share one key of pthread's, made when the library is loaded, which as a rule is one of the few
// that need no memory.
#pragma once

namespace nimble::shim {

// Storage for one request, part of what it is for; in no list while no thread waits for its call.
struct ThreadEnd {
  void (*run)(ThreadEnd& self) = nullptr;  // on the thread that ends, after the program's thread-local objects
  ThreadEnd* next = nullptr;
};

// False if there is no memory, or no key, for it. Any thread.
bool at_thread_end(ThreadEnd& end) noexcept;

}  // namespace nimble::shim
