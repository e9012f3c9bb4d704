// What a trace says about the pointers of its calls and the memory that they lead to, around one step.
//
// Refers to its arguments, which must outlive it. One thread. Objects are indices into the ObjectTable. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/memory/objects.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class PointerFacts {
 public:
  // `calls`: the step's ops.
  PointerFacts(const Trace& trace, const ObjectTable& table, std::span<const std::uint32_t> calls)
      : trace_(trace), table_(table), calls_(calls) {}

  // Goes through the whole trace. What follows it needs this first.
  void prepare();
  // All mapped memory may be the same memory: the object that stands for it.
  std::uint32_t slot(std::uint32_t object) const {
    return table_.objects()[object].memory == MemoryKind::mapped ? mapped_ : object;
  }
  // Whether the payload that was looked at when the copy was called is what it carried later.
  bool payload_is_known(std::uint32_t call) const;
  // Whether a kernel of the step is given memory that the host may fill.
  bool reads_host() const { return reads_host_; }

  // Whether the host may fill memory of this kind without a call.
  static bool host_fills(MemoryKind memory);
  bool host_fills(const PointerWord& pointer) const { return host_fills(table_.objects()[pointer.object].memory); }
  bool born_in_step(std::uint32_t object) const;
  const PointerWord* pointer_at(std::uint32_t call, std::uint32_t at) const;
  // The call's pointers, and words that may be pointers.
  std::vector<PointerWord> all_words(std::uint32_t call) const;
  // Whether the copy or set overwrites all of the object that the pointer leads to.
  bool covers(std::uint32_t call, const PointerWord& pointer) const;

 private:
  const Trace& trace_;
  const ObjectTable& table_;
  const std::span<const std::uint32_t> calls_;
  std::uint32_t mapped_ = kNone;  // the first object that is mapped
  bool host_functions_ = false;
  bool reads_host_ = false;
  std::vector<std::uint8_t> device_writes_;  // per object of the host's memory: something on the device writes it
};

}  // namespace nimble::analyzer
