#include "tests/oracle/run/runner.h"

#include "tests/oracle/program/ranges.h"
#include "tests/oracle/run/machine.h"

namespace nimble::oracle {
namespace {

class Runner : Machine {
 public:
  using Machine::Machine;

  std::uint64_t run() {
    for (std::uint32_t step = 0; step < program().repeats; ++step) {
      const std::uint32_t phase = step < program().calm ? 0 : step - program().calm;
      begin_step(step, phase);
      for (const Op& op : program().ops)
        if (in_step(op, phase)) issue(op);
      end_step();
    }
    finish();
    return digest();
  }
};

}  // namespace

std::uint64_t run_program(const Program& program) { return Runner(program).run(); }

}  // namespace nimble::oracle
