// What contexts, streams, events and memory pools are. The driver owns them all; guarded by its mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/simcuda/engine/op.h"
#include "tests/simcuda/engine/work.h"

namespace simcuda {

struct Capture;
struct Block;

// The order that whatever comes next on a stream, or after an event, must keep.
struct Tail {
  OpRef last;
  double end_us = 0;
  VectorClock clock;
};

// The event now represents this point; its previous record is forgotten.
void record_event(CUevent event, const Tail& tail);
// Of the next event that is made.
std::uint64_t next_event_id();

}  // namespace simcuda

struct CUctx_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'01;
  std::uint64_t tag = 0;
  std::uint64_t id = 0;
  unsigned flags = 0, api_version = 3020;
  bool primary = false, alive = true;
  CUresult fault = CUDA_SUCCESS;  // sticks until the context ends
  CUstream legacy = nullptr;
  std::vector<CUstream> streams;  // all but the legacy one
  std::unordered_map<std::uint64_t, CUstream> per_thread;
  std::vector<CUstream> since_legacy;  // blocking streams with work after the last op of the legacy stream
  std::vector<std::shared_ptr<simcuda::Capture>> captures;
  std::uint64_t pending = 0;  // ops
  simcuda::Tail all;          // of every op so far; `last` is not used
  std::map<int, std::size_t> limits;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  std::vector<CUmodule> modules;
  CUmemoryPool pool = nullptr;
  std::set<CUcontext> peers;  // that it has enabled access to
};

struct CUstream_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'02;
  std::uint64_t tag = 0;
  std::uint64_t id = 0;
  CUcontext context = nullptr;
  bool blocking = true, legacy = false, per_thread = false;
  int priority = 0;
  unsigned flags = 0;
  bool in_since_legacy = false;
  simcuda::Tail tail;
  std::uint64_t key = 0;  // rank among the streams, in an adversarial order
  std::uint32_t chain = 0;
  bool has_chain = false;
  std::map<int, CUlaunchAttributeValue> attributes;

  std::shared_ptr<simcuda::Capture> capture;
  std::vector<CUgraphNode> capture_tail;  // what the next captured node depends on
};

struct CUevent_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'03;
  std::uint64_t tag = 0;
  CUcontext context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  std::uint64_t id = 0;  // of all events that there ever were; a handle may come back
  simcuda::Tail tail;

  std::shared_ptr<simcuda::Capture> capture;  // recorded in a capture that goes on
  std::vector<CUgraphNode> capture_tail;
};

struct CUmemPoolHandle_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'04;
  std::uint64_t tag = 0;
  bool is_default = false;
  bool imported = false;  // from another process
  CUmemPoolProps props{};
  std::map<int, std::uint64_t> attributes;
  std::unordered_map<std::uint64_t, std::vector<simcuda::Block*>> free;  // by capacity, the last freed at the end
  std::uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
};
