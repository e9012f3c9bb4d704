#include "shim/record/trace/stream_tracks.h"

#include <fmt/format.h>

#include <algorithm>

#include "shim/record/trace/trace_text.h"

namespace nimble::shim {

void StreamTracks::bar(const Op& op, double begin_us, double duration_us, std::string_view more) {
  const std::string plain = op.function == kNone ? fmt::format("\"{}\"", op.symbol) : std::string{};
  append(
      out_,
      R"json({{"ph":"X","pid":2,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{"seq":{}{}}}}},)json",
      op.stream, begin_us, duration_us, op.function == kNone ? plain : definitions_.name_of(op.function), name(op.kind),
      op.seq, more);
  out_.push_back('\n');
}

// Bars move right where two threads overlap.
void StreamTracks::add(const Op& op, double begin_us, double duration_us) {
  if (busy_until_us_.size() <= op.stream) busy_until_us_.resize(op.stream + 1);
  double& busy_until = busy_until_us_[op.stream];
  const double begin = std::max(begin_us, busy_until);
  busy_until = begin + duration_us;
  bar(op, begin, duration_us, "");
}

std::optional<DeviceTime> StreamTracks::await(std::uint64_t ticket, const Op& op) {
  awaited_[ticket] = op;
  const auto early = early_.extract(ticket);
  return early ? std::optional(early.mapped()) : std::nullopt;
}

void StreamTracks::came(const DeviceTime& time, bool has_room) {
  const auto found = awaited_.find(time.ticket);
  if (found == awaited_.end()) {
    // Most wait for an op that is about to come. Times without an op, such as of a probe's copies, must not pile up.
    constexpr std::size_t kMostEarly = std::size_t{1} << 20;
    if (early_.size() >= kMostEarly) early_.clear();
    early_.try_emplace(time.ticket, time);
    return;
  }
  if (has_room)
    bar(found->second, microseconds(time.begin_ns), static_cast<double>(time.end_ns - time.begin_ns) / 1e3,
        R"json(,"device":true)json");
  awaited_.erase(found);
}

}  // namespace nimble::shim
