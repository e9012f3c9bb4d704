#include "shim/record_queue.h"

#include <ctime>

#include <chrono>
#include <thread>

#include "nimble/blocked_signals.h"
#include "shim/guard.h"
#include "shim/log.h"
#include "shim/trace_writer.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kWakeBytes = std::size_t{256} << 10;   // wake the writer early
constexpr std::size_t kLimitBytes = std::size_t{256} << 20;  // make the program wait
constexpr std::chrono::milliseconds kPeriod{50};             // otherwise write this often

// At the end of the process: how long to wait for a writer that gets nowhere.
constexpr std::chrono::milliseconds kPatience{5000}, kPatienceInside{300};
constexpr std::chrono::microseconds kLook{200};

}  // namespace

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

// In programs that are under test only: a process's own queue lives as long as the process.
RecordQueue::~RecordQueue() {
  close();
  while (started_ && !ended_.load(std::memory_order_acquire)) std::this_thread::sleep_for(kLook);
  delete writer_.load();
}

bool RecordQueue::make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes) {
  if (broken_ || abandoned_) return false;
  if (closed_.load(std::memory_order_relaxed)) return true;
  if (!started_.load(std::memory_order_relaxed)) {
    const BlockedSignals blocked;
    // Never joined: at its end a thread returns memory, for which it may need a lock that an interrupted thread holds.
    std::thread([this] {
      run();
      ended_.store(true, std::memory_order_release);
    }).detach();
    started_ = true;
  }
  if (buffer_.size() + bytes > kLimitBytes) {
    wake_writer_.notify_one();
    wake_program_.wait(lock, [&] { return buffer_.size() + bytes <= kLimitBytes || broken_; });
    if (broken_) return false;
  } else if (buffer_.size() + bytes > kWakeBytes && buffer_.size() <= kWakeBytes) {
    wake_writer_.notify_one();
  }
  return true;
}

void RecordQueue::write(const RecordBuffer& records) {
  TraceWriter& writer = *writer_.load(std::memory_order_relaxed);
  records.read([&](const std::uint8_t* begin, std::size_t bytes) {
    for (const std::uint8_t* at = begin; at != begin + bytes;) {
      const auto& item = *reinterpret_cast<const QueueItem*>(at);
      if (item.type == QueueItem::Type::call) {
        writer.write(static_cast<const Record&>(item));
      } else {
        writer.write(static_cast<const TimeRecord&>(item).time);
      }
      at += item.bytes;
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

void RecordQueue::run() {
  Guard guard;  // whatever the driver calls from here passes through
  const std::uint64_t epoch_ns = epoch_ns_.load(std::memory_order_relaxed);
  auto* const writer = store_ ? new TraceWriter(store_, epoch_ns) : new TraceWriter(path_, epoch_ns);
  writer_.store(writer, std::memory_order_release);
  RecordBuffer taken;
  std::unique_lock lock(mutex_);
  if (!writer->good()) broken_ = true;
  while (!broken_) {
    wake_writer_.wait_for(lock, kPeriod, [&] { return closing_ || hurried_ || buffer_.size() > kWakeBytes; });
    const bool last = closing_;
    hurried_ = false;
    taken.swap(buffer_);
    lock.unlock();
    wake_program_.notify_all();
    write(taken);
    taken.clear();
    bool good = writer->flush();
    written_.store(progress_.load(std::memory_order_relaxed), std::memory_order_release);
    lock.lock();
    if (good && last) {
      // What came meanwhile, with the lock held so that nothing more comes.
      write(buffer_);
      buffer_.clear();
      good = abandoned_ ? writer->flush() : writer->close(coverage_, probe_);
    }
    if (!good) broken_ = true;
    if (last) break;
  }
  closed_ = true;
  wake_program_.notify_all();
}

// The process is ending: nobody looks after what is left in the buffer, unless the writer is still at it.
void RecordQueue::push_late(std::unique_lock<std::mutex>& lock) {
  if (!closed_.load(std::memory_order_relaxed)) {
    lock.unlock();
    return close();
  }
  write(buffer_);
  buffer_.clear();
  if (!writer_.load(std::memory_order_relaxed)->close(coverage_, probe_)) broken_ = true;
}

void RecordQueue::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
  }
  wake_writer_.notify_one();
}

void RecordQueue::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void RecordQueue::push(std::span<const DeviceTime> times) {
  const std::lock_guard lock(mutex_);
  if (!started_ || closing_ || broken_ || abandoned_) return;
  if (buffer_.size() + times.size() * sizeof(TimeRecord) > kLimitBytes) return;
  pushed_.fetch_add(times.size(), std::memory_order_relaxed);
  for (const DeviceTime& time : times) {
    new (buffer_.append(sizeof(TimeRecord))) TimeRecord{{sizeof(TimeRecord), QueueItem::Type::time}, time};
  }
}

void RecordQueue::set_coverage(const Coverage& coverage) {
  const std::lock_guard lock(mutex_);
  coverage_ = coverage;
}

void RecordQueue::set_probe(const ProbeTotals& totals) {
  const std::lock_guard lock(mutex_);
  probe_ = totals;
}

void RecordQueue::close(bool interrupted) noexcept {
  closing_ = true;
  if (!started_) return;
  // The writer looks once per period anyway. Passing through the lock first makes sure that it is not just about to
  // wait.
  if (!interrupted) {
    if (mutex_.try_lock()) mutex_.unlock();
    wake_writer_.notify_one();
  }
  const std::chrono::milliseconds patience = interrupted ? kPatienceInside : kPatience;
  std::uint64_t seen = progress_.load(std::memory_order_relaxed);
  auto since = std::chrono::steady_clock::now();
  while (!closed_.load(std::memory_order_acquire)) {
    std::this_thread::sleep_for(kLook);
    const auto now = std::chrono::steady_clock::now();
    if (const std::uint64_t progress = progress_.load(std::memory_order_relaxed); progress != seen) {
      seen = progress;
      since = now;
    } else if (now - since > patience) {
      return;
    }
  }
}

bool RecordQueue::forked() noexcept {
  if (TraceWriter* const writer = writer_.load(std::memory_order_acquire)) writer->let_go();
  return !started_;
}

}  // namespace nimble::shim
