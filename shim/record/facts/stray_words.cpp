#include "shim/record/facts/stray_words.h"

#include <array>
#include <cstring>

#include "nimble/internal/schedule.h"
#include "shim/process/per_thread.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kForGood = ~std::uint64_t{0};

// A thread's cached answer: a word, and in which state of memory it points nowhere, or that it points somewhere.
struct Told {
  std::uint64_t word = 0, state = 0;
};

struct Memory {
  static constexpr std::size_t kWords = 4096;
  std::array<Told, kWords> told;
  std::vector<std::uint32_t> list;

  Told& at(std::uint64_t word) { return told[(word * 0x9E3779B97F4A7C15u) >> 52]; }
};

}  // namespace

void StrayWords::start(CallContext& context) {
  const auto find = [&]<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(context.driver_symbol(name));
  };
  decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
  decltype(&::cuDeviceGetCount) device_count = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  find("cuPointerGetAttribute", pointer_attribute);
  find("cuDeviceGetCount", device_count);
  find("cuDeviceGetAttribute", device_attribute);
  known_reach_ = Reach(pointer_attribute, device_count, device_attribute);
  reach_.store(&known_reach_, std::memory_order_release);
}

bool StrayWords::nowhere(std::uint64_t word) {
  const Reach* const reach = reach_.load(std::memory_order_acquire);
  if (!reach) return false;
  Told& told = PerThread<Memory>::get().at(word);
  const std::uint64_t state =
      nearby_.state(word);  // before asking the driver: memory that comes meanwhile is seen next time
  if (told.word == word && (told.state == kForGood || told.state == state)) return told.state != kForGood;
  const bool nowhere = reach->nowhere(word);
  if (!nowhere)
    told = {word, kForGood};
  else if (reach->lasts())
    told = {word, state};
  return nowhere;
}

const std::vector<std::uint32_t>& StrayWords::of(const FunctionInfo& function, const std::uint8_t* params) {
  std::vector<std::uint32_t>& list = PerThread<Memory>::get().list;
  list.clear();
  for (const ParamLayout& param : *function.params) {
    for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, params + at, sizeof word);
      if (could_be_address(word) && nowhere(word)) list.push_back(at);
    }
  }
  return list;
}

}  // namespace nimble::shim
