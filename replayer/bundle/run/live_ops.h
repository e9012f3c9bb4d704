// The step's ops as calls of this process: kernels of the images loaded here, this process's addresses, our own streams
// and events, and a buffer for each copy from or to memory that only the program had.
//
// Owns all of these. One thread, with the driver's context current. Errors: DriverError, InputError, Refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/bundle/process/live_driver.h"
#include "replayer/bundle/process/placement.h"
#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/payloads.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

class LiveOps {
 public:
  LiveOps(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Payloads& payloads,
          const Placement& placement, const std::vector<CUmodule>& modules);
  LiveOps(const LiveOps&) = delete;
  LiveOps& operator=(const LiveOps&) = delete;

  // The op as the program's call would be here. Valid as long as this lives.
  const Call& call(std::uint32_t op) const { return ops_[op]->call; }
  CUstream stream(std::uint32_t trace_stream) const { return streams_.at(trace_stream); }
  // The streams that the step's ops are on, beginning with the first op's.
  const std::vector<std::uint32_t>& streams() const { return stream_order_; }
  // Null if the step does not record it.
  CUevent recorded_event(std::uint32_t trace_event) const;

  // Makes the op's call, as the program did. Allocations and releases need no call: their memory is already there.
  CUresult submit(std::uint32_t op, CUstream stream) { return submit(*ops_[op], stream); }

  struct Op {
    Call call;
    std::vector<std::uint8_t> params;
    std::vector<void*> arguments;
    std::shared_ptr<std::vector<std::uint8_t>> own_source, own_result;
  };
  // The same op with other addresses: `move` is asked for each word that may be one.
  std::unique_ptr<Op> moved(std::uint32_t op, const std::function<std::uint64_t(std::uint64_t)>& move) const;
  CUresult submit(const Op& op, CUstream stream);
  CUresult submit_launch(const Call::Launch& launch, CUstream stream);
  CUresult submit_copy(const Op& op, CUstream stream);
  CUresult submit_set(const Call::Transfer& transfer, CUstream stream);

  // The buffer in place of the program's own memory in a copy; null if there is none.
  std::vector<std::uint8_t>* source(std::uint32_t op) { return ops_[op]->own_source.get(); }
  std::vector<std::uint8_t>* result(std::uint32_t op) { return ops_[op]->own_result.get(); }

 private:
  // What was made for the ops, and is destroyed with them.
  struct Made {
    explicit Made(LiveDriver& driver_) : driver(driver_) {}
    ~Made();
    LiveDriver& driver;
    std::vector<CUstream> streams;
    std::vector<CUevent> events;
  };

  struct Function {
    CUfunction handle = nullptr;
    std::uint32_t shared_bytes = 0;  // the most of any launch
  };

  [[noreturn]] void fail(std::uint32_t index, const char* why) const;
  CUevent make_event();
  void move_params(const TraceCall& recorded, Op& op, const std::function<std::uint64_t(std::uint64_t)>& move) const;
  void make_launch(std::uint32_t index, const TraceCall& recorded, Op& op);
  void make_copy(std::uint32_t index, const TraceCall& recorded, Op& op);
  std::uint64_t side(std::uint32_t index, std::uint64_t address, std::uint64_t bytes, const BundlePayload* payload,
                     std::shared_ptr<std::vector<std::uint8_t>>& own) const;
  void check_objects(std::uint32_t index) const;
  Function& function(std::uint32_t index, const TraceCall& recorded);
  CUstream make_stream(const TraceStream& stream);

  LiveDriver& driver_;
  const BundleFiles& files_;
  const RecordedStep& step_;
  const Payloads& payloads_;
  const Placement& placement_;
  const std::vector<CUmodule>& modules_;
  Made made_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::unordered_map<std::uint32_t, CUstream> streams_;  // by stream of the trace
  std::vector<std::uint32_t> stream_order_;
  std::unordered_map<std::uint32_t, CUevent> events_;  // by event of the trace
  std::unordered_map<std::uint64_t, Function> functions_;
};

}  // namespace nimble::bundle
