// What the queue of a recording holds: calls, and when the GPU ran them.
//
// Plain data in a RecordBuffer, without destructors. One thread at a time.
#pragma once

#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/trace/record_buffer.h"

namespace nimble::shim {

struct GraphInfo;

// The items of the queue, back to back.
struct QueueItem {
  enum class Type : std::uint32_t { call, time };
  std::uint32_t bytes = 0;  // of the whole item, a multiple of 8
  Type type = Type::call;
};

// What the recorder knows of a call beyond what the call says. `function` stays valid, and so does `graph`, which the
// record shares (shim/record/facts/graph_table.h).
struct RecordFacts : QueueItem {
  std::uint32_t param_bytes = 0, stray_count = 0, attribute_count = 0, access_count = 0, word_count = 0;
  bool accesses_known = false, words_known = false;
  bool probed = false;       // a launch whose accesses a probe saw
  std::uint64_t ticket = 0;  // of the DeviceTime that will come for it; 0: none will
  CUresult result = CUDA_SUCCESS;
  std::uint64_t seq = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  const FunctionInfo* function = nullptr;
  GraphInfo* graph = nullptr;
  StreamKind stream_kind = StreamKind::blocking;
  CUcontext context = nullptr;  // of the stream or the allocation
};

// One call in the queue, followed by its accesses, its words, its packed parameters, the places of stray words in
// these, and its attribute ids. Pointers of `call` into the program are no longer valid.
struct Record : RecordFacts {
  Call call;

  const TraceAccess* accesses() const { return reinterpret_cast<const TraceAccess*>(this + 1); }
  const TraceWord* words() const { return reinterpret_cast<const TraceWord*>(accesses() + access_count); }
  const std::uint8_t* params() const { return reinterpret_cast<const std::uint8_t*>(words() + word_count); }
  // Aligned: parameters are padded to 4 bytes.
  const std::uint32_t* strays() const {
    return reinterpret_cast<const std::uint32_t*>(params() + (param_bytes + 3) / 4 * 4);
  }
  const std::uint32_t* attributes() const { return strays() + stray_count; }
};

// When the GPU ran an earlier or later record's op.
struct TimeRecord : QueueItem {
  DeviceTime time;
};

// Calls `look` for each item, in order.
template <class Look>
void for_each_item(const RecordBuffer& records, Look look) {
  records.read([&](const std::uint8_t* begin, std::size_t bytes) {
    for (const std::uint8_t* at = begin; at != begin + bytes;) {
      const auto& item = *reinterpret_cast<const QueueItem*>(at);
      look(item);
      at += item.bytes;
    }
  });
}

// Releases an item's share of its graph, which it must not use any more.
void drop_item(const QueueItem& item) noexcept;
// The same of all.
void drop_items(const RecordBuffer& records) noexcept;

}  // namespace nimble::shim
