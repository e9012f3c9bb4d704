// Whether the default pool of devices is as the driver made it: the program may replace it, or change the access to a
// pool, and from then on its allocations are not like any other.
//
// One counter for the process; any thread, without a lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace nimble::shim {

namespace detail {
inline constinit std::atomic<std::uint64_t> g_default_pool_changes{0};
}

// How often the program has done so.
inline std::uint64_t default_pool_changes() { return detail::g_default_pool_changes.load(std::memory_order_relaxed); }
inline bool default_pool_is_plain() { return default_pool_changes() == 0; }
inline void default_pool_changed() { detail::g_default_pool_changes.fetch_add(1, std::memory_order_relaxed); }

}  // namespace nimble::shim
