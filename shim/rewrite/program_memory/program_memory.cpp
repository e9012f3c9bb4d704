#include "shim/rewrite/program_memory/program_memory.h"

namespace nimble::shim {

void ProgramMemory::came(const Call& call, bool analyzing) {
  const bool is_plain = call.kind == CallKind::alloc &&
                        (call.memory.kind == MemoryKind::device || call.memory.kind == MemoryKind::pinned ||
                         call.memory.kind == MemoryKind::managed);
  is_plain ? library_.came(call.memory.address, call.caller) : library_.goes(call.memory.address);
  known_.came(call.memory.address, call.memory.size);
  // The analysis of a graph did not see memory that came meanwhile.
  if (!analyzing) released_.came(call.memory.address, call.memory.size);
}

void ProgramMemory::goes(const Call& call) {
  library_.goes(call.memory.address);
  released_.goes(call.memory.address, call.memory.size);
}

void ProgramMemory::is_about_to_end(const Call& call) {
  watch_.ends(call);
  if (call.ends == Ends::code) library_.code_goes();
  if (call.kind == CallKind::context_end) library_.forget();
}

}  // namespace nimble::shim
