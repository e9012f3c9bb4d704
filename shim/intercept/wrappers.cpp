// What every intercepted call does: enter the guard, let the sink see the call, call the driver, let the sink see the
// outcome, return the driver's answer. If the driver is out of memory, the sink releases what it can, and the call is
// retried once. Holds no lock around the driver's call and allocates nothing.

#include <type_traits>

#include "shim/driver/call_receiver.h"
#include "shim/driver/guard.h"
#include "shim/driver/interception.h"
#include "shim/driver/real_driver.h"
#include "shim/intercept/decode/all_decoders.h"
#include "shim/process/roomy_stack.h"

namespace nimble::shim {

constinit thread_local bool Guard::inside_ = false;

namespace {

// Decoder, default stream and host effect of each id: the other columns of the table.
template <CallId id>
struct Row;
#define NIMBLE_CALL(symbol, default_stream_, decoder, host_)                        \
  template <>                                                                       \
  struct Row<id_##symbol> {                                                         \
    using Decoder = decode::decoder;                                                \
    static constexpr DefaultStream default_stream = DefaultStream::default_stream_; \
    static constexpr HostEffect host = HostEffect::host_;                           \
  };
#include "nimble/internal/driver_calls.def"

// Compiler options, some of which the driver writes to: a retried call would not see them as they were.
template <class Argument>
bool are_compiler_options(Argument argument) {
  if constexpr (std::is_same_v<Argument, CUjit_option*>) return argument != nullptr;
  return false;
}

// Not calls that end something, nor those of several ops, some of which may be done already; nor calls that wait, which
// report errors of earlier work.
bool may_be_made_again(const Call& call) {
  switch (call.kind) {
    case CallKind::opaque:
      if (call.traced) return false;  // what remains is not traced, such as loading code
      break;
    case CallKind::stream_synchronize:
    case CallKind::event_synchronize:
    case CallKind::context_synchronize:
      return false;
    default:
      break;
  }
  const bool ends_something = call.kind == CallKind::capture_end || call.kind == CallKind::context_end ||
                              call.kind == CallKind::free || call.kind == CallKind::free_async ||
                              call.ends != Ends::nothing || call.graph.edit == GraphEdit::end ||
                              call.graph.edit == GraphEdit::destroy;
  return !ends_something;
}

template <CallId id, class Function>
struct Wrapper;

// Jumped to, with the arguments where the program has put them; and its return address, which says who called. A build
// that does not make calls at the end of a function jumps has it inlined.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NIMBLE_JUMPED_TO [[gnu::noinline]]
#else
#define NIMBLE_JUMPED_TO [[gnu::always_inline]]
#endif

template <CallId id, class... Args>
struct Wrapper<id, CUresult(Args...)> {
  using Driver = CUresult (*)(Args...);

  static CUresult looked_up(Args... args) {
    const auto driver = reinterpret_cast<Driver>(g_real[id].load(std::memory_order_acquire));
    if (driver && is_off()) return driver(args...);
    return enter_looked_up(args...);
  }
  static CUresult linked(Args... args) {
    const auto driver = reinterpret_cast<Driver>(g_next[id].load(std::memory_order_acquire));
    if (driver && is_off()) return driver(args...);
    return enter_linked(args...);
  }

 private:
  static bool is_off() {
    if constexpr (requires(Args... args) { Row<id>::Decoder::passed(args...); }) return false;
    return g_sink.load(std::memory_order_acquire) == 0;
  }
  NIMBLE_JUMPED_TO static CUresult enter_looked_up(Args... args) { return call(real<id>(), args...); }
  NIMBLE_JUMPED_TO static CUresult enter_linked(Args... args) { return call(next<id>(), args...); }

  // Inlined, as all that follows: so that arguments need not be in memory.
  [[gnu::always_inline]] static CUresult call(Driver driver, Args... args) {
    if (!driver) [[unlikely]]
      return CUDA_ERROR_NOT_SUPPORTED;  // linked against a newer driver than is loaded
    if constexpr (requires { Row<id>::Decoder::passed(args...); }) {
      return passed(driver, args...);
    } else {
      CallSink* const receiver = sink();
      if (!receiver) return driver(args...);
      Guard guard;
      if (!guard.outermost()) return driver(args...);
      return observed(__builtin_return_address(0), receiver, driver, args...);
    }
  }

  static CUresult passed(Driver driver, Args... args) {
    const Guard guard;
    const CUresult result = driver(args...);
    if (result != CUDA_SUCCESS || !guard.outermost() || !intercepting()) return result;
    try {
      with_room([&] { Row<id>::Decoder::passed(args...); });
    } catch (...) {  // out of memory: left out
    }
    return result;
  }

  [[gnu::always_inline]] static CUresult observed(const void* caller, CallSink* receiver, Driver driver, Args... args) {
    if (has_room()) [[likely]]
      return observe(
          [](auto&& part) __attribute__((always_inline)) { return part(); }, caller, receiver, driver, args...);
    return on_small_stack(caller, receiver, driver, args...);
  }
  [[gnu::noinline, gnu::cold]] static CUresult on_small_stack(const void* caller, CallSink* receiver, Driver driver,
                                                              Args... args) {
    return observe([](auto&& part) { return with_room(part); }, caller, receiver, driver, args...);
  }

  // `run` runs our parts of the call, not the driver's.
  template <class Run>
  [[gnu::always_inline]] static CUresult observe(Run run, const void* caller, CallSink* receiver, Driver driver,
                                                 Args... args) {
    using Decoder = typename Row<id>::Decoder;
    Call call;
    call.symbol = kCallSymbols[id];
    call.caller = caller;
    call.host = Row<id>::host;
    const Entry entry{Row<id>::default_stream};
    const auto before = [&]() __attribute__((always_inline))->Answer {
      Decoder::before(entry, call, args...);
      const auto answer = receiver->before(call);
      if constexpr (requires(CUresult result) { Decoder::reply(call, result, driver, args...); })
        if (answer) return Decoder::reply(call, *answer, driver, args...);
      if constexpr (requires { Decoder::answer(call, args...); }) {
        if (answer && *answer == CUDA_SUCCESS) Decoder::answer(call, args...);
      }
      return answer;
    };
    if (const auto answer = run(before)) return *answer;
    CUresult result = driver(args...);
    return run([&]() __attribute__((always_inline)) {
      // Retried once; if that fails too, in whatever way, the program gets the first result.
      if (result == CUDA_ERROR_OUT_OF_MEMORY && may_be_made_again(call) && !(are_compiler_options(args) || ...))
          [[unlikely]] {
        if (receiver->give_back(call) && driver(args...) == CUDA_SUCCESS) result = CUDA_SUCCESS;
      }
      if (result == CUDA_SUCCESS) {
        // What a decoder learns of modules and functions takes memory. If there is none, we just know less.
        if constexpr (requires { Decoder::after(call, args...); }) {
          try {
            Decoder::after(call, args...);
          } catch (...) {
            call.traced = false;
          }
        }
      }
      receiver->after(call, result);
      return receiver->told(call, result);
    });
  }
};

template <CallId id>
using WrapperOf = Wrapper<id, typename CallType<id>::Function>;

}  // namespace
}  // namespace nimble::shim

// What exports.S jumps through.
extern "C" {
#define NIMBLE_CALL(symbol, default_stream, decoder, host)                                  \
  __attribute__((visibility("hidden"))) extern decltype(&::symbol) nimble_wrapper_##symbol; \
  decltype(&::symbol) nimble_wrapper_##symbol = &nimble::shim::WrapperOf<nimble::shim::id_##symbol>::linked;
#include "nimble/internal/driver_calls.def"
}

namespace nimble::shim {

void* wrapper(CallId id) {
  static void* const table[kCallCount] = {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) reinterpret_cast<void*>(&WrapperOf<id_##symbol>::looked_up),
#include "nimble/internal/driver_calls.def"
  };
  return table[id];
}

void* next_wrapper(CallId id) {
  static void* const table[kCallCount] = {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) reinterpret_cast<void*>(&WrapperOf<id_##symbol>::linked),
#include "nimble/internal/driver_calls.def"
  };
  return table[id];
}

}  // namespace nimble::shim
