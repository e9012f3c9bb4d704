// Traces whose ops have times on the GPU: for the tests of the ledger.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>

#include "analyzer/ledger/ledger.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer::test {

inline constexpr std::uint64_t kA = 0x100000, kB = 0x200000, kC = 0x300000, kBytes = 0x1000;

// A step, several times over. Kernels: 0 reads its second parameter and writes its first; of 1 nothing is known.
class TimedStep {
 public:
  TimedStep() {
    text_.image(true);
    text_.function("_Z1kPfPKf", "[[0,8],[8,8]]", 0, ",\"code\":\"00000000000000ab\"");
    text_.function("unknown", "null", 0);
    text_.stream();
    text_.stream();
    for (const std::uint64_t each : {kA, kB, kC}) text_.alloc(each, kBytes);
    calls_ = 3;
  }

  // Each begins so long after it has been submitted, or `begin` on the trace's clock.
  void kernel(std::uint64_t to, std::uint64_t from, double begin, double us, int blocks = 8, int on = 0) {
    text_.launch(0, hex(to) + hex(from), on, "", blocks);
    ran("launch", begin, us);
  }
  void unknown(double begin, double us) {
    text_.launch(1, "", 0);
    ran("launch", begin, us);
  }
  void set(std::uint64_t to, std::uint64_t bytes, double begin, double us) {
    text_.set(to, bytes);
    ran("set", begin, us);
  }
  void synchronize() {
    text_.synchronize();
    ++calls_;
    now_ += 1;
  }
  // The next call takes so long.
  void takes(double us) {
    text_.takes(us);
    now_ += us - 1;
  }
  void pass(double us) {
    text_.pass(us);
    now_ += us;
  }
  // The trace's clock, at which the next call begins.
  double now() const { return now_ + 3; }

  Analysis analyze() const { return text_.analyze(); }

 private:
  void ran(const char* category, double begin, double us) {
    if (us >= 0)
      text_.line(fmt::format(
          R"({{"ph":"X","pid":2,"tid":0,"ts":{:.3f},"dur":{:.3f},"name":"","cat":"{}","args":{{"seq":{},"device":true}}}})",
          begin, us, category, calls_));
    ++calls_;
    now_ += 1;
  }

  TraceText text_;
  std::uint64_t calls_ = 0;
  double now_ = 0;
};

inline Ledger ledger_of(const Analysis& analysis) { return idle_ledger(analysis, DeviceModel()); }

}  // namespace nimble::analyzer::test
