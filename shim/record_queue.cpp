#include "shim/record_queue.h"

#include <ctime>

#include <chrono>

#include "nimble/blocked_signals.h"
#include "shim/guard.h"
#include "shim/log.h"
#include "shim/trace_writer.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kWakeBytes = std::size_t{256} << 10;   // wake the writer early
constexpr std::size_t kLimitBytes = std::size_t{256} << 20;  // make the program wait
constexpr std::chrono::milliseconds kPeriod{50};             // otherwise write this often

}  // namespace

RecordQueue::~RecordQueue() {
  Coverage unknown;
  unknown.why_not = "the recorder ended early";
  close(unknown);
}

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

bool RecordQueue::make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes) {
  if (closing_ || broken_ || abandoned_) return false;
  if (!started_) {
    buffer_.reserve(kWakeBytes * 4);
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
    started_ = true;
  }
  if (buffer_.size() + bytes > kLimitBytes) {
    wake_writer_.notify_one();
    wake_program_.wait(lock, [&] { return buffer_.size() + bytes <= kLimitBytes || broken_ || closing_; });
    if (closing_ || broken_) return false;
  } else if (buffer_.size() + bytes > kWakeBytes && buffer_.size() <= kWakeBytes) {
    wake_writer_.notify_one();
  }
  return true;
}

void RecordQueue::run() {
  Guard guard;  // whatever the driver calls from here passes through
  TraceWriter writer(path_, epoch_ns_.load(std::memory_order_relaxed));
  std::vector<std::uint8_t> taken;
  std::unique_lock lock(mutex_);
  if (!writer.good()) broken_ = true;
  while (!broken_) {
    wake_writer_.wait_for(lock, kPeriod, [&] { return closing_ || buffer_.size() > kWakeBytes; });
    taken.clear();
    taken.swap(buffer_);
    const bool last = closing_, abandoned = abandoned_;
    lock.unlock();
    wake_program_.notify_all();
    for (std::size_t at = 0; at < taken.size();) {
      const auto& item = *reinterpret_cast<const QueueItem*>(taken.data() + at);
      if (item.type == QueueItem::Type::call) {
        writer.write(static_cast<const Record&>(item));
      } else {
        writer.write(static_cast<const TimeRecord&>(item).time);
      }
      at += item.bytes;
    }
    const bool good = last && !abandoned ? writer.close(coverage_) : writer.flush();
    lock.lock();
    if (!good) broken_ = true;
    if (last) break;
  }
  wake_program_.notify_all();
}

void RecordQueue::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void RecordQueue::push(std::span<const DeviceTime> times) {
  const std::lock_guard lock(mutex_);
  if (!started_ || closing_ || broken_ || abandoned_) return;
  const std::size_t at = buffer_.size(), bytes = times.size() * sizeof(TimeRecord);
  if (at + bytes > kLimitBytes) return;
  buffer_.resize(at + bytes);
  auto* placed = reinterpret_cast<TimeRecord*>(buffer_.data() + at);
  for (const DeviceTime& time : times) {
    new (placed++) TimeRecord{{sizeof(TimeRecord), QueueItem::Type::time}, time};
  }
}

void RecordQueue::close(const Coverage& coverage) {
  {
    std::lock_guard lock(mutex_);
    if (!closing_) coverage_ = coverage;
    closing_ = true;
  }
  wake_writer_.notify_one();
  wake_program_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace nimble::shim
