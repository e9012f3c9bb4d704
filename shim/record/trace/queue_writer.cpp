#include "shim/record/trace/queue_writer.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "nimble/internal/files/own_file.h"
#include "nimble/internal/process/quiet_file.h"
#include "shim/record/trace/trace_writer.h"

namespace nimble::shim {

QueueWriter::~QueueWriter() { delete writer_.load(); }

bool QueueWriter::write(const RecordBuffer& records) {
  TraceWriter& writer = *writer_.load(std::memory_order_relaxed);
  bool good = true;
  for_each_item(records, [&](const QueueItem& item) {
    if (item.type != QueueItem::Type::call) {
      writer.write(static_cast<const TimeRecord&>(item).time);
    } else if (good) {
      good = writer.write(static_cast<const Record&>(item));
    }
    drop_item(item);
    progress_.fetch_add(1, std::memory_order_relaxed);
  });
  return good;
}

void QueueWriter::make() {
  const std::uint64_t epoch_ns = epoch_ns_.load(std::memory_order_relaxed);
  auto writer = options_.store
                    ? std::make_unique<TraceWriter>(options_.store, epoch_ns)
                    : std::make_unique<TraceWriter>(options_.path, epoch_ns, options_.limit_bytes, options_.is_read);
  if (options_.is_read) {
    reading_ = writer->reading();
    reading_.open();  // here, like the file itself (RecordQueue::make_room)
  }
  writer->open_by([this](const std::function<void()>& work) { turn_.take(work); });
  writer_.store(writer.release(), std::memory_order_release);
}

// A reader may come late. Each attempt takes a descriptor for a moment, so it is the program's turn. Whether it is held
// open in between does not matter to the reader.
void QueueWriter::make_of_pipe() {
  bool is_open = false;
  for (int i = 0; i < OwnFile::kPatienceMs && !is_open; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    turn_.take([&] {
      QuietFile attempt;
      is_open = attempt.open(options_.path.c_str(), O_WRONLY | O_NONBLOCK) != ENXIO;
      if (is_open) try_to_make();
    });
  }
  if (!is_open) turn_.take([&] { try_to_make(); });  // says why it cannot
  if (!writer_.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

void QueueWriter::try_to_make() noexcept try { make(); } catch (...) {  // out of memory
}

void QueueWriter::discard() noexcept {
  const std::unique_ptr<TraceWriter> writer(writer_.exchange(nullptr));
  if (writer) writer->discard();
}

void QueueWriter::publish() {
  written_bytes_.store(writer_.load(std::memory_order_relaxed)->bytes(), std::memory_order_release);
  written_.store(progress_.load(std::memory_order_relaxed), std::memory_order_release);
}

GrowingFile* QueueWriter::reading(std::uint64_t& bytes) {
  bytes = written_bytes_.load(std::memory_order_acquire);
  return writer_.load(std::memory_order_acquire) ? &reading_ : nullptr;
}

std::string QueueWriter::path(bool is_closed) const {
  const TraceWriter* const writer = is_closed ? writer_.load() : nullptr;
  return writer && !writer->path().empty() ? writer->path() : options_.path;
}

void QueueWriter::let_go_in_child() noexcept {
  if (TraceWriter* const writer = writer_.load(std::memory_order_acquire)) {
    writer->let_go();
    reading_.close();
  }
}

}  // namespace nimble::shim
