// The objects that one step touches, numbered in the order in which the step first names them.
//
// Owns its lists; immutable once built. Sizes in bytes. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "analyzer/memory/objects.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

struct StepObject {
  std::uint32_t id = kNone;  // index into ObjectTable::objects
  std::uint64_t size = 0;
  MemoryKind memory = MemoryKind::device;
  bool step_local = false;      // allocated and freed by the step itself, in one context, from the default pool
  std::uint32_t alloc = kNone;  // the ops that did, as indices into the step
  std::uint32_t free = kNone;
};

struct StepObjects {
  std::vector<StepObject> objects;
  std::unordered_map<std::uint32_t, std::uint32_t> index_of;  // from ObjectTable's index

  std::uint32_t find(std::uint32_t id) const {
    auto found = index_of.find(id);
    return found == index_of.end() ? kNone : found->second;
  }
};

StepObjects objects_of_step(const Trace& trace, const ObjectTable& table, std::span<const std::uint32_t> calls);

}  // namespace nimble::analyzer
