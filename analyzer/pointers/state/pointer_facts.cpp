#include "analyzer/pointers/state/pointer_facts.h"

namespace nimble::analyzer {

void PointerFacts::prepare() {
  const auto& objects = table_.objects();
  for (std::uint32_t i = 0; i < objects.size() && mapped_ == kNone; ++i)
    if (objects[i].memory == MemoryKind::mapped) mapped_ = i;
  device_writes_.assign(objects.size(), 0);
  for (std::uint32_t index = 0; index < trace_.calls.size(); ++index) {
    const TraceCall& call = trace_.calls[index];
    if (call.kind == CallKind::host_function) host_functions_ = true;
    if (!is_op(call.kind)) continue;
    const bool copies = call.kind == CallKind::copy || call.kind == CallKind::set;
    for (const PointerWord& pointer : all_words(index))
      if (!copies || pointer.at == kAtDst) device_writes_[pointer.object] = 1;
  }
  for (const std::uint32_t index : calls_)
    if (trace_.calls[index].kind == CallKind::launch)
      for (const PointerWord& pointer : all_words(index)) reads_host_ |= host_fills(pointer);
}

bool PointerFacts::payload_is_known(std::uint32_t call) const {
  const TraceCall& copy = trace_.calls[call];
  if (!copy.words || copy.height != 1) return false;
  const PointerWord* source = pointer_at(call, kAtSrc);
  if (source == nullptr || copy.synchronous) return true;  // the driver takes the host's own memory at once
  return !host_functions_ && device_writes_[source->object] == 0;
}

bool PointerFacts::host_fills(MemoryKind memory) {
  return memory == MemoryKind::pinned || memory == MemoryKind::registered || memory == MemoryKind::managed ||
         memory == MemoryKind::external;
}

bool PointerFacts::born_in_step(std::uint32_t object) const {
  const Object& known = table_.objects()[object];
  return known.birth != kNone && known.birth >= calls_.front() && known.memory != MemoryKind::mapped;
}

const PointerWord* PointerFacts::pointer_at(std::uint32_t call, std::uint32_t at) const {
  for (const PointerWord& pointer : table_.pointers(call)) {
    if (pointer.at == at) return &pointer;
    if (pointer.at > at) break;
  }
  return nullptr;
}

std::vector<PointerWord> PointerFacts::all_words(std::uint32_t call) const {
  const auto pointers = table_.pointers(call);
  std::vector<PointerWord> all(pointers.begin(), pointers.end());
  const auto unsure = table_.unsure(call);
  all.insert(all.end(), unsure.begin(), unsure.end());
  return all;
}

bool PointerFacts::covers(std::uint32_t call, const PointerWord& pointer) const {
  const TraceCall& made = trace_.calls[call];
  return made.height == 1 && pointer.offset == 0 && made.width == table_.objects()[pointer.object].size &&
         table_.objects()[pointer.object].memory != MemoryKind::mapped;
}

}  // namespace nimble::analyzer
