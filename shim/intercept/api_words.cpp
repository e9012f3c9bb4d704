// The part of the C API by which a program looks at its own memory, whatever the mode: nothing here knows the driver.
#define NIMBLE_IMPLEMENTATION
#include "nimble/nimble.h"

#include <cstdint>

nimble_result nimble_update_words(const std::uint64_t* const* at, std::uint64_t* words, size_t count) {
  if (count && (!at || !words)) return NIMBLE_INVALID_ARGUMENT;
  bool same = true;
  for (size_t i = 0; i < count; ++i) {
    const std::uint64_t now = __atomic_load_n(at[i], __ATOMIC_RELAXED);
    same = same && now == words[i];
    words[i] = now;
  }
  return same ? NIMBLE_SUCCESS : NIMBLE_REFUSED;
}
