#include "shim/record/trace/record_queue.h"

#include <chrono>
#include <ctime>
#include <exception>
#include <thread>

#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/own_thread.h"
#include "nimble/internal/process/patience.h"
#include "shim/driver/guard.h"
#include "shim/process/host_room.h"
#include "shim/process/log.h"
#include "shim/record/trace/trace_writer.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kWakeBytes = std::size_t{256} << 10;   // wake the writer early
constexpr std::size_t kLimitBytes = std::size_t{256} << 20;  // make the program wait
constexpr std::chrono::milliseconds kPeriod{50};             // otherwise write this often

// At the end of the process: how long to wait for a writer that makes no progress.
constexpr std::chrono::milliseconds kPatience{5000}, kPatienceInside{300};
constexpr std::chrono::microseconds kLook{200};

// While the program waits for memory that the writer has.
constexpr std::chrono::milliseconds kPatienceForMemory{1000};

}  // namespace

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void RecordQueue::prepare() { TraceWriter::find_driver(); }

// Only for a recording into memory that has ended, on a program thread: its writer makes progress, whatever the program
// holds. A queue that writes a file lives as long as the process.
RecordQueue::~RecordQueue() {
  join();
  drop_items(buffer_);
}

void RecordQueue::join() noexcept {
  close();
  const NotCancelled not_cancelled;
  while (started_ && !ended_.load(std::memory_order_acquire)) std::this_thread::sleep_for(kLook);
}

bool RecordQueue::make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes) {
  if (broken_ || refusing_) return false;
  if (closed_.load(std::memory_order_relaxed)) return true;
  if (!started_.load(std::memory_order_relaxed)) {
    // Opens the file here, inside a driver call (program_turn.h), and the log, to which the writer's thread may be the
    // first to write.
    if (!options().store) open_log();
    if (options().store || !TraceWriter::needs_reader(options().path)) writer_.make();
    // Never joined: an exiting thread returns memory, for which it may need a lock that an interrupted thread holds.
    const bool runs = start_own_thread([this] {
      run();
      ended_.store(true, std::memory_order_release);
    });
    if (!runs) {
      broken_ = true;
      writer_.discard();
      lock.unlock();
      log(LogLevel::warning,
          options().path + ": nothing is recorded: the thread that writes the trace cannot be started");
      if (options().stops) options().stops();
      return false;
    }
    started_ = true;
  }
  if (buffer_.size() + bytes > kLimitBytes) {
    wake_writer_.notify_one();
    const NotCancelled not_cancelled;
    const auto goes_on = [&] { return buffer_.size() + bytes <= kLimitBytes || broken_ || refusing_; };
    while (!wake_program_.wait_for(lock, kPeriod, goes_on)) {
      lock.unlock();
      turn_.give();
      lock.lock();
    }
    if (broken_ || refusing_) return false;
  } else if (buffer_.size() + bytes > kWakeBytes && buffer_.size() <= kWakeBytes) {
    wake_writer_.notify_one();
  }
  if (!buffer_.has_room(bytes) && !host_has_room()) throw std::bad_alloc();
  return true;
}

// A failure here, most likely out of memory, ends the recording and nothing else.
void RecordQueue::run() noexcept {
  try {
    write_all();
  } catch (const std::bad_alloc&) {
    cut_short(kHostIsFull);
  } catch (const std::exception& error) {
    cut_short(error.what());
  } catch (...) {
    cut_short("an error");
  }
}

// With the memory that the reserve has: the file ends properly with the calls that are in it.
void RecordQueue::cut_short(const char* why) noexcept {
  const Guard guard;
  const MemoryReserve reserve;
  TraceWriter* const writer = writer_.made();
  refusing_ = true;
  wake_program_.notify_all();
  if (options().stops) options().stops();
  bool ended = false;
  try {
    RecordBuffer left;
    std::unique_lock lock(mutex_);
    broken_ = true;
    left.swap(buffer_);
    const Coverage coverage = std::move(coverage_);
    const std::optional<ProbeTotals> probe = std::move(probe_);
    lock.unlock();
    drop_items(left);
    if (!writer || options().store) {
      log(LogLevel::error, options().path + ": recording ends here: " + why);
    } else {
      ended = writer->cut_short(coverage, probe, stopping_ && !ending_.why.empty() ? ending_ : Ending{why});
    }
  } catch (...) {  // not even that
  }
  if (writer) writer->let_go();
  closed_ = true;
  wake_program_.notify_all();
  if (ended && options().stopped) options().stopped();
}

void RecordQueue::write_all() {
  Guard guard;  // calls from inside the driver pass through
  if (!writer_.made()) writer_.make_of_pipe();
  TraceWriter* const writer = writer_.made();
  writer->begin();
  RecordBuffer taken;
  std::unique_lock lock(mutex_);
  bool good = writer->good(), can_write = good;
  for (bool last = false; good && !last;) {
    wake_writer_.wait_for(lock, kPeriod,
                          [&] { return closing_ || stopping_ || hurried_ || buffer_.size() > kWakeBytes; });
    if (!host_has_room()) {
      const MemoryReserve reserve;
      stop({kHostIsFull});
    }
    last = closing_ || stopping_;
    hurried_ = false;
    taken.swap(buffer_);
    lock.unlock();
    wake_program_.notify_all();
    good = writer_.write(taken);
    taken.clear();
    can_write = writer->flush();
    good = good && can_write;
    writer_.publish();
    lock.lock();
  }
  const bool stops = !good || stopping_;
  if (stops) {
    stop_writing(lock, taken, can_write);
    lock.lock();
    buffer_ = {};  // no more will come
  } else {
    // Records that came meanwhile, with the lock held so that no more come.
    writer_.write(buffer_);
    buffer_.clear();
    if (!writer->close(coverage_, probe_, {})) broken_ = true;
  }
  closed_ = true;
  wake_program_.notify_all();
  lock.unlock();
  if (stops && options().stopped) options().stopped();
}

// The program goes on, and nothing of ours may block it: whatever takes long happens without the lock. If the file has
// reached its limit, the writer takes no more calls, but still takes the times of those in it.
void RecordQueue::stop_writing(std::unique_lock<std::mutex>& lock, RecordBuffer& taken, bool can_write) {
  TraceWriter& writer = *writer_.made();
  refusing_ = true;
  taken.swap(buffer_);
  lock.unlock();
  wake_program_.notify_all();
  if (can_write) {
    writer_.write(taken);
  } else {
    drop_items(taken);
  }
  taken.clear();
  if (options().stops) options().stops();
  lock.lock();
  taken.swap(buffer_);  // times of calls in the file
  const Coverage coverage = std::move(coverage_);
  const std::optional<ProbeTotals> probe = std::move(probe_);
  broken_ = true;
  lock.unlock();
  writer_.write(taken);
  taken.clear();
  writer.close(coverage, probe, stopping_ ? ending_ : Ending());
  writer.let_go();
}

// The process is ending: no one will write what is left in the buffer, unless the writer is still running.
void RecordQueue::push_late(std::unique_lock<std::mutex>& lock) {
  const NotCancelled not_cancelled;
  if (!closed_.load(std::memory_order_relaxed)) {
    lock.unlock();
    return close();
  }
  writer_.write(buffer_);
  buffer_.clear();
  if (!writer_.made()->close(coverage_, probe_, {})) broken_ = true;
}

// A writer that is just about to wait misses it, and looks after its period. The same holds for stop().
void RecordQueue::hurry() {
  hurried_ = true;
  wake_writer_.notify_one();
}

bool RecordQueue::stop(Ending ending) noexcept {
  if (closing_ || refusing_.exchange(true)) return true;
  ending_ = std::move(ending);
  stopping_ = true;
  if (!started_) return false;
  wake_writer_.notify_one();
  wake_program_.notify_all();  // threads that miss it are woken by the writer
  return true;
}

bool RecordQueue::let_end() noexcept {
  const NotCancelled not_cancelled;
  Patience patience(kPatienceForMemory);
  while (started_ && !ended_.load(std::memory_order_acquire)) {
    turn_.give();
    if (!patience.sleep(kLook)) return false;
  }
  return true;
}

void RecordQueue::push(std::span<const DeviceTime> times) {
  const std::lock_guard lock(mutex_);
  if (!started_ || closing_ || broken_) return;
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
  turn_.end();
  if (!started_) return;
  // The writer looks once per period anyway. Passing through the lock first makes sure that it is not just about to
  // wait.
  if (!interrupted) {
    if (mutex_.try_lock()) mutex_.unlock();
    wake_writer_.notify_one();
  }
  const NotCancelled not_cancelled;
  Patience patience(interrupted ? kPatienceInside : kPatience);
  std::uint64_t seen = writer_.progress();
  while (!closed_.load(std::memory_order_acquire) && patience.sleep(kLook)) {
    if (const std::uint64_t progress = writer_.progress(); progress != seen) {
      seen = progress;
      patience.begin_anew();
    }
  }
}

bool RecordQueue::forked() noexcept {
  if (::getpid() != process_) writer_.let_go_in_child();
  return !started_;
}

}  // namespace nimble::shim
