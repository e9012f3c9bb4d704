#include "tests/oracle/disorder/script_runner.h"

#include <cuda.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "tests/oracle/disorder/crew.h"
#include "tests/oracle/run/machine.h"
#include "tests/simcuda/simcuda.h"

namespace nimble::oracle {
namespace {

thread_local std::uint32_t place = 0;  // of the call at hand; see Told

class ScriptRunner : Machine {
 public:
  ScriptRunner(const Script& script, Faults faults, const Told& fatal)
      : Machine(script.program), script_(script), faults_(faults), fatal_(fatal) {
    const std::uint32_t streams = script.program.streams + 1;
    threads_ = script.threads == Threads::one ? 0 : streams;
    if (threads_ != 0) crew_.emplace(threads_, [this](std::uint32_t op) { issue_at(op); });
  }

  ScriptResult run() {
    const std::uint32_t calm = script_.program.calm;
    for (at_ = 0; at_ < script_.steps.size(); ++at_) {
      go_to(0);
      const bool fails = of_step(script_.fault);
      if (fails) make_ready();
      begin_step(at_, at_ < calm ? 0 : at_ - calm);
      issue_all();
      if (fails) {
        go_to(place_of_wait(script_));
        ask("cuCtxSynchronize", cuCtxSynchronize());
        if (script_.fault.kind != FaultKind::own) simcuda_clear_injections();
      }
      go_to(static_cast<std::uint32_t>(script_.steps[at_].size()) + 2);
      end_step();
    }
    go_to(0);
    finish();
    crew_.reset();
    result_.digest = digest();
    result_.digests = digests();
    result_.failures = simcuda_failures();
    result_.races = simcuda_race_count();
    result_.illegal = simcuda_illegal_access_count();
    return std::move(result_);
  }

 private:
  void go_to(std::uint32_t next) {
    place = next;
    if (faults_ != Faults::at || fatal_.step != at_ || fatal_.at != next) return;
    CUdevice device = 0;
    simcuda_inject("cuCtxGetDevice", 1, fatal_.result);
    ask("cuCtxGetDevice", cuCtxGetDevice(&device));
  }

  bool of_step(const Fault& fault) const { return fault.kind != FaultKind::none && fault.step == at_; }
  void ask(const char* call, CUresult result) { answered(call, result); }

  // The program goes on, as many do.
  void answered(const char*, CUresult result) override {
    if (result == CUDA_SUCCESS) return;
    const std::lock_guard lock(mutex_);
    const Told told{at_, place, result};
    if (result_.errors.empty() || result_.errors.back() != told) result_.errors.push_back(told);
    if (result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED) stop_noting();
  }

  void make_ready() {
    const Fault& fault = script_.fault;
    if (fault.kind == FaultKind::own) {
      if (faults_ == Faults::all) simcuda_inject(fault.symbol.c_str(), fault.nth, fault.result);
      return;
    }
    // No held op may be mistaken for the intended one.
    ask("cuCtxSynchronize", cuCtxSynchronize());
  }

  void issue_all() {
    const std::vector<Op>& ops = script_.steps[at_];
    if (!crew_) {
      for (std::uint32_t i = 0; i < ops.size(); ++i) issue_at(i);
      return;
    }
    std::vector<std::uint32_t> by;
    for (const Op& op : ops) by.push_back(script_.program.streams == 1 ? at_ % threads_ : op.stream);
    crew_->run(ops, std::move(by), script_.threads);
  }

  void issue_at(std::uint32_t index) {
    const Op& op = script_.steps[at_][index];
    go_to(index + 1);
    if (of_step(script_.fault) && script_.fault.op == index) arm(op);
    issue(op);
  }

  void arm(const Op& op) {
    const Fault& fault = script_.fault;
    if (fault.kind == FaultKind::own || faults_ == Faults::at) return;
    if (fault.kind == FaultKind::memory) {
      for (const char* symbol : {"cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAlloc_v2"})
        simcuda_inject(symbol, 1, fault.result);
      return;
    }
    const int runs = fault.kind == FaultKind::runs ? 1 : 0;
    if (op.kind == OpKind::launch) {
      simcuda_fail_op(SIMCUDA_KERNEL, salt(op), fault.result, runs);
    } else {
      simcuda_fail_op(op.kind == OpKind::copy ? SIMCUDA_COPY : SIMCUDA_SET, std::uint64_t{op.width} * op.height,
                      fault.result, runs);
    }
  }

  const Script& script_;
  const Faults faults_;
  const Told fatal_;
  std::uint32_t at_ = 0, threads_ = 0;
  std::mutex mutex_;
  ScriptResult result_;
  std::optional<Crew> crew_;
};

template <class T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
void put(std::string& bytes, const std::vector<T>& values) {
  put(bytes, values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class Taker {
 public:
  explicit Taker(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  void take(T& value) {
    copy(&value, sizeof value);
  }
  template <class T>
  void take(std::vector<T>& values) {
    std::size_t size = 0;
    take(size);
    if (size > bytes_.size()) throw std::runtime_error("a result that is not whole");
    values.resize(size);
    copy(values.data(), size * sizeof(T));
  }

 private:
  void copy(void* to, std::size_t size) {
    if (bytes_.size() - at_ < size) throw std::runtime_error("a result that is not whole");
    if (size != 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::uint32_t place_of_wait(const Script& script) {
  return static_cast<std::uint32_t>(script.steps[script.fault.step].size()) + 1;
}

ScriptResult run_script(const Script& script, Faults faults, const Told& at) {
  return ScriptRunner(script, faults, at).run();
}

std::string pack(const ScriptResult& r) {
  std::string bytes;
  put(bytes, r.digest);
  put(bytes, r.digests);
  put(bytes, r.errors);
  put(bytes, r.failures);
  put(bytes, r.races);
  put(bytes, r.illegal);
  return bytes;
}

ScriptResult unpack_result(const std::string& bytes) {
  ScriptResult r;
  Taker taker(bytes);
  taker.take(r.digest);
  taker.take(r.digests);
  taker.take(r.errors);
  taker.take(r.failures);
  taker.take(r.races);
  taker.take(r.illegal);
  return r;
}

}  // namespace nimble::oracle
