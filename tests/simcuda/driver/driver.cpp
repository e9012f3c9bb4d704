// See driver.h. Also the common beginning of every call (entry.h).
#include "tests/simcuda/driver/driver.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/driver/inject.h"
#include "tests/simcuda/observe/observer.h"
#include "tests/simcuda/observe/report.h"

namespace simcuda {
namespace {

std::uint64_t number_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 0;
}

std::string text_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

// Lets work go on while the program makes no call at all, because it watches memory. Asked for by SIMCUDA_IDLE_MS.
void run_when_idle(Driver& d) {
  std::uint64_t seen = 0;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(d.options.idle_ms));
    std::lock_guard<std::mutex> lock(d.mutex);
    if (d.calls == seen) {
      while (d.engine.run_one()) {
      }
    }
    seen = d.calls;
  }
}

thread_local bool in_host_function = false;

}  // namespace

Driver::Driver() {
  options.seed = number_from("SIMCUDA_SEED");
  options.log = number_from("SIMCUDA_LOG") != 0;
  options.accesses = number_from("SIMCUDA_ACCESS") != 0;
  options.races = number_from("SIMCUDA_RACES") != 0;
  options.inject = text_from("SIMCUDA_INJECT");
  options.report = text_from("SIMCUDA_REPORT");
  options.idle_ms = static_cast<unsigned>(number_from("SIMCUDA_IDLE_MS"));
  options.no_hints = number_from("SIMCUDA_NO_HINTS") != 0;
  if (const std::string text = text_from("SIMCUDA_ATTRIBUTE"); !text.empty())
    std::sscanf(text.c_str(), "%d=%d", &options.attribute, &options.attribute_value);
  if (const std::uint64_t mib = number_from("SIMCUDA_MEMORY"); mib != 0) memory.has_only(mib << 20);
  memory.region().begin_at(number_from("SIMCUDA_REGION"));
  engine.set_seed(options.seed);
  tracking.accesses = options.accesses;
  tracking.races = options.races;
}

Driver& driver() {
  static Driver& state = [&]() -> Driver& {
    Driver* made = new Driver();
    inject_from(made->options.inject);
    report_at_exit(*made);
    if (made->options.idle_ms != 0) std::thread(run_when_idle, std::ref(*made)).detach();
    return *made;
  }();
  return state;
}

Symbol* Symbol::first;

Symbol::Symbol(const char* symbol_name) : name(symbol_name), next(first) { first = this; }

Symbol* Symbol::find(const char* name) {
  for (Symbol* symbol = first; symbol != nullptr; symbol = symbol->next) {
    if (std::strcmp(symbol->name, name) == 0) return symbol;
  }
  return nullptr;
}

HostFunctionScope::HostFunctionScope() {
  in_host_function = true;
  driver().mutex.unlock();
}

HostFunctionScope::~HostFunctionScope() {
  driver().mutex.lock();
  in_host_function = false;
  driver().changed.notify_all();
}

Call::Call(Symbol& symbol, Need need, bool is_per_thread)
    : driver(simcuda::driver()), per_thread(is_per_thread), symbol_(symbol) {
  if (in_host_function && need == kContext) {  // the API forbids it, and a real driver may deadlock
    result_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  const std::uint32_t number = observe_call(symbol.name);
  driver.mutex.lock();
  own_lock_ = true;
  driver.observed_call = number;
  driver.caller = {++driver.calls, symbol.name, thread_number()};
  driver.clock.spend(driver.clock.model().call_host_us);
  if (++symbol.calls == symbol.fail_at) {
    result_ = symbol.failure;
    ++driver.counters.failures;
    if (is_fault(result_) && current_context() != nullptr) current_context()->fault = result_;
    return;
  }
  if (need == kNothing) return;
  if (!driver.initialised) {
    result_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  if (need == kInit) return;
  context = current_context();
  if (context == nullptr) {
    result_ = CUDA_ERROR_INVALID_CONTEXT;
  } else if (!context->alive) {
    result_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  } else {
    result_ = context->fault;
  }
}

Call::~Call() {
  if (driver.options.log) log_call(symbol_.name, result_);
  if (own_lock_) driver.mutex.unlock();
}

CUstream Call::stream(CUstream handle) const {
  if (handle == nullptr) return per_thread ? per_thread_stream(context) : context->legacy;
  if (handle == CU_STREAM_LEGACY) return context->legacy;
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(context);
  return valid(handle) && handle->context->alive ? handle : nullptr;
}

}  // namespace simcuda
