#include "shim/record/step_count.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "analyzer/input/zstd_file.h"
#include "analyzer/service.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/own_thread.h"
#include "shim/driver/guard.h"
#include "shim/process/log.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kFirstLook = 256;            // calls
constexpr std::chrono::milliseconds kLookEvery{10};  // for whether there are enough
// How much nicer than the program's threads the search is. With 19 it would get next to nothing while others keep all
// cores busy, and the recording would not end.
constexpr int kNicer = 5;

}  // namespace

StepCount::~StepCount() {
  const NotCancelled not_cancelled;
  over_ = true;
  while (looking_.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void StepCount::mark(bool begins, std::uint32_t thread, std::uint64_t seq) {
  marked_.store(true, std::memory_order_relaxed);
  std::uint32_t steps = 0;
  {
    const std::lock_guard lock(mutex_);
    Marks& marks = marks_[thread];
    if (marks.open && seq > marks.begin + 1) ++marks.steps;  // a step without a call does not count
    marks.open = begins;
    marks.begin = seq;
    steps = marks.steps;
  }
  if (steps >= steps_) enough(steps, "as marked");
}

void StepCount::enough(std::uint64_t steps, const char* how) {
  if (over_.exchange(true)) return;
  queue_.stop({fmt::format("{} step{} {} (NIMBLE_STEPS={})", steps, steps == 1 ? "" : "s", how, steps_), true});
}

void StepCount::look(std::function<std::uint64_t()> calls) {
  looking_ = true;
  const bool runs = start_own_thread([this, calls = std::move(calls)] {
    const Guard guard;
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicer);  // of this thread only
    try {
      work(calls);
    } catch (const std::exception&) {  // out of memory: it goes on to its limit
    }
    std::uint64_t bytes = 0;
    if (GrowingFile* const file = queue_.reading(bytes)) file->close();
    looking_.store(false, std::memory_order_release);
  });
  if (!runs) looking_ = false;  // marked steps are still counted
}

void StepCount::work(const std::function<std::uint64_t()>& calls) {
  std::uint64_t target = kFirstLook;
  while (!over_.load(std::memory_order_relaxed) && !marked_.load(std::memory_order_relaxed) && !queue_.is_over()) {
    const std::uint64_t now = calls();
    if (now < target) {
      std::this_thread::sleep_for(kLookEvery);
      continue;
    }
    // The recorder's own thread writes what has been pushed so far.
    const std::uint64_t pushed = queue_.pushed();
    queue_.hurry();
    while (queue_.written() < pushed && !queue_.is_over() && !over_) std::this_thread::sleep_for(kLookEvery);
    std::string why_not;
    const std::optional<std::uint64_t> steps = steps_so_far(why_not);
    if (!steps) {
      if (!why_not.empty())
        log(LogLevel::warning, fmt::format("NIMBLE_STEPS={}: {}. The recording continues", steps_, why_not));
      return;
    }
    if (*steps >= steps_) return enough(*steps, "found");
    // Look again at the number of calls that the rate of steps suggests, within bounds that waste neither looks nor
    // recording.
    const std::uint64_t guess = *steps == 0 ? 2 * now : now / *steps * steps_ + now / 16;
    target = std::clamp(guess, now + now / 8 + 1, 2 * now);
  }
}

std::optional<std::uint64_t> StepCount::steps_so_far(std::string& why_not) {
  std::uint64_t left = 0, at = 0;
  GrowingFile* const file = queue_.reading(left);
  const bool is_there = file && file->open();
  if (queue_.is_over()) return std::nullopt;  // the file may have been renamed by now
  if (!is_there) {
    why_not = file && file->is_file() ? "the trace has been moved: from now on" : "since the trace is not a file,";
    why_not += " only steps that the program marks are counted";
    return std::nullopt;
  }
  analyzer::ZstdFile text(
      [&](char* buffer, std::size_t size) -> std::size_t {
        const std::size_t got = file->read(buffer, std::min<std::uint64_t>(size, left), at);
        at += got;
        left -= got;
        return got;
      },
      "the trace");
  std::uint64_t bytes = 0;
  Trial trial([&](char* buffer, std::size_t size) -> std::size_t {
    const std::size_t got = bytes > limit_bytes_ ? 0 : text.read(buffer, size);
    bytes += got;
    return got;
  });
  const bool has_step = trial.find_step();
  if (bytes > limit_bytes_) {
    why_not = fmt::format("no {} steps were found in {} MiB of trace (NIMBLE_AUTO_LIMIT)", steps_, limit_bytes_ >> 20);
    return std::nullopt;
  }
  return has_step ? trial.times() : 0;
}

}  // namespace nimble::shim
