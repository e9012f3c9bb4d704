#include "tests/oracle/program/program.h"

#include <algorithm>

#include "tests/oracle/program/contents.h"
#include "tests/oracle/program/generator.h"
#include "tests/oracle/program/order.h"

namespace nimble::oracle {
namespace {

// Leaves out what was asked for, and what then reads or frees what is not there.
void keep_valid(Program& program, const Limits& limits) {
  Contents contents(program.buffers);
  std::vector<bool> recorded(program.events, false);
  std::vector<Op> kept;
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    const bool asked = std::find(limits.without.begin(), limits.without.end(), i) != limits.without.end();
    // Memory is freed whatever is left out.
    if ((asked || i >= limits.ops) && op.kind != OpKind::free) continue;
    if (op.kind == OpKind::record) recorded[op.event] = true;
    if ((op.kind == OpKind::host_wait || op.kind == OpKind::poll) && !recorded[op.event]) continue;
    if (contents.apply(op)) kept.push_back(std::move(op));
  }
  program.ops = std::move(kept);
  // What was to be freed by an op that is gone.
  for (std::uint32_t buffer = 0; buffer < program.buffers.size(); ++buffer) {
    const Memory memory = program.buffers[buffer].memory;
    if (!of_step(memory) || memory == Memory::carried || !contents.live(buffer)) continue;
    Op op;
    op.kind = OpKind::free;
    op.buffer = buffer;
    op.ranges = {{buffer, 0, program.buffers[buffer].bytes, true}};
    program.ops.push_back(std::move(op));
  }
}

}  // namespace

const char* name_of(Kernel kernel) {
  static constexpr const char* kNames[] = {
#define X(id, name) name,
      NIMBLE_ORACLE_KERNELS(X)
#undef X
  };
  return kNames[static_cast<int>(kernel)];
}

Program make_program(std::uint64_t seed, const Limits& limits) {
  Program program = draw_program(seed, limits.several_streams);
  keep_valid(program, limits);
  if (limits.repeats != 0) program.repeats = limits.repeats;
  order_streams(program);
  return program;
}

std::uint32_t drawn_ops(std::uint64_t seed, bool several_streams) {
  return static_cast<std::uint32_t>(draw_program(seed, several_streams).ops.size());
}

}  // namespace nimble::oracle
