#include "shim/rewrite/recording/graph_recording.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "analyzer/base/errors.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/patience.h"
#include "shim/state/stream_ref.h"

namespace nimble::shim {

namespace {

// How long an analysis waits for the recording to be written.
constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::chrono::microseconds kLook{200};

}  // namespace

GraphRecording::GraphRecording(RecordObservers observers, std::uint64_t limit_bytes, CapturedRanges& ranges,
                               CallContext& context)
    : ranges_(ranges),
      store_(std::make_shared<TraceStore>(limit_bytes)),
      recorder_({.path = "NIMBLE_GRAPHS", .store = store_}, context, std::move(observers)),
      trace_(std::make_unique<analyzer::GrowingTrace>("NIMBLE_GRAPHS=rewrite")) {}

void GraphRecording::begin_after(const std::vector<Call>& calls) {
  there(ranges_.all());
  for (const Call& call : calls) record(call);
}

void GraphRecording::end() noexcept {
  recorder_.finish();
  store_->drop();
  trace_.reset();
}

bool GraphRecording::catch_up_to(std::uint64_t records) {
  recorder_.hurry();
  const NotCancelled not_cancelled;
  Patience patience(kPatience);
  while (recorder_.written() < records && !store_->full())
    if (recorder_.failed() || !patience.sleep(kLook)) return false;
  return true;
}

void GraphRecording::record(Call call) {
  call.traced = true;
  call.thread = thread_index();
  recorder_.before(call);
  recorder_.after(call, CUDA_SUCCESS);
}

void GraphRecording::waited_for(CUcontext context) {
  Call call;
  call.symbol = "cuCtxSynchronize";
  call.kind = CallKind::context_synchronize;
  call.context = context;
  record(call);
}

void GraphRecording::there(const CapturedRanges::Ranges& ranges) {
  for (const auto& [address, size] : ranges) {
    Call allocation;
    allocation.symbol = kMemoryOfACapture;
    allocation.kind = CallKind::alloc;
    allocation.memory.kind = MemoryKind::device;
    allocation.memory.address = address;
    allocation.memory.size = size;
    record(allocation);
  }
}

void GraphRecording::gone(const std::vector<MemorySlot>& slots) {
  for (const MemorySlot& slot : slots) {
    Call release;
    release.symbol = kMemoryOfACapture;
    release.kind = CallKind::free;
    release.memory.address = slot.address;
    record(release);
  }
}

GraphRecording::Nodes GraphRecording::nodes(const ProgramGraph& original, const CaptureMemory* memory,
                                            std::uint64_t number) {
  Nodes result;
  // Not a stream of the program: other threads' work on it might come in between.
  const StreamRef stream{nullptr, reinterpret_cast<std::uint64_t>(original.context()) | 3};
  const auto op = [&](Call call, std::uint32_t node) {
    call.stream = stream;
    call.has_stream = true;
    record(call);
    result.node.push_back(node);
  };
  const std::string name = "graph " + std::to_string(number);
  recorder_.mark(true, name.c_str(), thread_index());
  result.place.first_seq = recorder_.calls();
  auto event = memory ? memory->events.begin() : std::vector<CaptureMemory::Event>::const_iterator();
  const auto events_up_to = [&](std::size_t place) {
    for (; memory && event != memory->events.end() && event->node <= place; ++event) {
      if (std::binary_search(memory->lasting.begin(), memory->lasting.end(), event->address)) continue;
      Call call;
      call.symbol = "memory of a graph";
      call.kind = event->released ? CallKind::free_async : CallKind::alloc_async;
      call.memory.kind = MemoryKind::stream_ordered;
      call.memory.address = event->address;
      call.memory.size = event->size;
      op(call, kNone);
    }
  };
  std::vector<std::uint32_t> op_of;
  for (std::uint32_t node = 0; node < original.nodes().size(); ++node) {
    events_up_to(original.nodes()[node].place);
    op_of.push_back(static_cast<std::uint32_t>(result.node.size()));
    op(original.nodes()[node].call, node);
  }
  if (original.branches()) {
    result.given.emplace();
    for (const auto& [before, after] : *original.branches()) result.given->push_back({op_of[before], op_of[after]});
  }
  events_up_to(std::numeric_limits<std::size_t>::max());
  result.place.last_seq = recorder_.calls() - 1;
  result.place.ops = static_cast<std::uint32_t>(result.node.size());
  recorder_.mark(false, nullptr, thread_index());
  const std::uint64_t pushed = recorder_.pushed();
  if (memory) there(ranges_.add(*memory));
  if (!catch_up_to(pushed) || (recorder_.failed() && !store_->full())) {
    result.why_not = "the recording is not written";
    return result;
  }
  if (store_->full()) {
    result.why_not = kFull;
    return result;
  }
  read_on();
  result.why_not = why_not_read_;
  return result;
}

void GraphRecording::read_on() try {
  const TraceStore::Text text = store_->text();
  for (; why_not_read_.empty() && read_ < text.size(); ++read_) trace_->read_on(text[read_].text);
} catch (const analyzer::InputError& error) {
  why_not_read_ = error.what();  // in the middle of something
}

}  // namespace nimble::shim
