#include "replayer/match/op_text.h"

namespace nimble {

std::string op_text(const Schedule& schedule, std::uint32_t op) {
  const ScheduleOp& named = schedule.ops[op];
  std::string text = "op " + std::to_string(op) + " (" + std::string(name(named.kind));
  if (named.kind == CallKind::launch && named.function != kNone)
    text += " " + schedule.functions[named.function].name.substr(0, 100);
  return text + ")";
}

}  // namespace nimble
