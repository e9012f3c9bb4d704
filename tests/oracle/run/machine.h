// What a random program has on the CUDA driver, and the calls that each of its ops makes.
//
// Owns nothing that outlives the process. Ops may be issued by several threads at once as long as none uses what
// another is still making; all else is for one thread.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

class Machine {
 public:
  // Makes all that is there before the first step.
  explicit Machine(const Program& program);
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 protected:
  // What a call answered. Ends the process with a line on stderr where that is an error.
  virtual void answered(const char* call, CUresult result);

  // The step at hand. `phase`: counted from the first that is not calm (program.h).
  void begin_step(std::uint32_t step, std::uint32_t phase);
  void issue(const Op& op);
  void end_step();
  void wait_for_all();
  // Waits for everything, and makes all memory that stays part of what the program computed.
  void finish();

  const Program& program() const { return program_; }
  std::uint32_t step() const { return step_; }
  std::uint64_t digest() const { return digest_; }
  // By buffer, at the end; 0 for one that is not part of the result.
  const std::vector<std::uint64_t>& digests() const { return digests_; }
  // What a launch that takes a salt is given in this step.
  unsigned salt(const Op& op) const { return op.salt ^ step_ * 0x9e3779b9u ^ static_cast<unsigned>(digest_); }
  CUevent event(std::uint32_t index) const { return events_[index]; }
  // From here on nothing is defined any more, and nothing is part of the result.
  void stop_noting() { noting_ = false; }

 private:
  void make_buffer(std::uint32_t index);
  void make_pool();
  void capture_graph();
  void write_inputs();
  CUdeviceptr at(const Place& drawn) const;
  bool on_host(const Place& place) const;
  void note(const void* bytes, std::size_t size);

  void allocate(const Op& op, CUstream stream);
  void release(const Op& op, CUstream stream);
  void launch(const Op& op, CUstream stream);
  void copy(const Op& op, CUstream stream);
  void set(const Op& op, CUstream stream);
  CUfunction function(Kernel kernel, bool proven);
  void read_places(const Op& op);

  // What only steps in disorder do (disorder.h): machine_disorder.cpp.
  void disturb(const Op& op, CUstream stream);
  void replace(std::uint32_t buffer);
  void renew(std::uint32_t buffer, unsigned value);
  void read_back(const Op& op, CUstream stream);
  void look_at(const Op& op);
  void launch_captured(const Op& op, CUstream stream);
  void launch_reloaded(const Op& op, CUstream stream);

  static constexpr std::uint32_t kHalves = 2;

  const Program& program_;
  std::array<CUmodule, 2> modules_{};
  std::mutex functions_mutex_;
  std::array<std::array<CUfunction, static_cast<std::size_t>(Kernel::count)>, 2> functions_{};
  CUmodule reloaded_ = nullptr;  // while it is there, kernels come from it
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> address_, last_address_;  // by buffer
  std::vector<std::vector<unsigned char>> pageable_;
  CUgraphExec graph_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::uint32_t step_ = 0, phase_ = 0, half_ = 0;
  std::uint64_t digest_ = 14695981039346656037u;
  std::vector<std::uint64_t> digests_;
  bool noting_ = true;
  std::atomic<std::uint32_t> host_functions_{0};  // that have run
};

}  // namespace nimble::oracle

// A call of the driver, and what it answered.
#define ASK(call) answered(#call, (call))
