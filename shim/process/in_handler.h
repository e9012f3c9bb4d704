// Whether this thread may be in a signal handler of the program's, which may have interrupted anything: malloc, with
// its lock taken, too. Then nothing may be done that such a lock would stop for ever.
//
// No state, allocates nothing, throws nothing, takes no lock; any thread, and in handlers.
#pragma once

namespace nimble::shim {

// False only if it is in none. True in the following cases, each of which may be so outside of handlers as well:
//   - A signal that has a handler is blocked, as while that runs (unless the program has said otherwise: SA_NODEFER).
//   - The thread is on its stack for handlers (sigaltstack).
//   - On x86-64: the thread's stack holds the address to which a handler returns (the C library's sa_restorer).
bool may_be_in_handler() noexcept;

}  // namespace nimble::shim
