// Handles of the driver API are pointers to our own structs, which begin with a tag. Structs come from a slab that
// never gives memory back, so a stale handle is recognised by its tag instead of being a wild read. Guarded by the
// driver's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace simcuda {

template <typename T>
class Slab {
 public:
  T* make() {
    if (free_.empty()) {
      chunks_.push_back(std::make_unique<T[]>(kChunk));
      for (std::size_t i = kChunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
    }
    T* item = free_.back();
    free_.pop_back();
    item->tag = T::kTag;
    return item;
  }

  void release(T* item) {
    *item = T();
    item->tag = 0;
    free_.push_back(item);
  }

 private:
  static constexpr std::size_t kChunk = 64;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<T*> free_;
};

template <typename T>
bool valid(const T* handle) {
  return handle != nullptr && reinterpret_cast<std::uintptr_t>(handle) % alignof(T) == 0 && handle->tag == T::kTag;
}

}  // namespace simcuda
