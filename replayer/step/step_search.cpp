#include "replayer/step/step_search.h"

#include "replayer/match/op_text.h"

namespace nimble {

void StepSearch::note(std::uint32_t ops, std::uint32_t length, std::uint32_t expected, const char* reason,
                      std::uint32_t byte) {
  if (ops <= ops_) return;
  ops_ = ops;
  length_ = length;
  expected_ = expected;
  byte_ = byte;
  reason_ = reason;
}

std::string StepSearch::why(const Schedule& schedule) const {
  if (ops_ == 0) return "no call was its first, " + op_text(schedule, 0);
  std::string text = "at most " + std::to_string(ops_) + " of its " + std::to_string(length_) + " ops came, and then ";
  text += expected_ != kNone ? "not " + op_text(schedule, expected_) + ": " : "";
  text += reason_;
  if (byte_ != kNone) text += ", in byte " + std::to_string(byte_) + " of its parameters";
  return text;
}

}  // namespace nimble
