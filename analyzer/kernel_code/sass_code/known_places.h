// Which values of a kernel are known addresses of local memory or of parameters, and so which words of these it names.
//
// Refers to what it is made of, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/kernel.h"
#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {

class KnownPlaces {
 public:
  KnownPlaces(const Kernel& kernel, const ControlFlow& flow, const Values& values)
      : kernel_(kernel), flow_(flow), values_(values) {}

  // Where in local memory an operand's first byte lies, from where the kernel's stack begins.
  std::optional<std::int64_t> in_local(std::uint32_t instruction, const MemoryOperand& operand) const;
  // Where among the parameters an address of the parameters' space lies that stands in these registers.
  std::optional<std::int64_t> in_params(std::uint32_t instruction, const Registers& registers) const;

 private:
  // A value that is a known place plus a constant.
  struct Known {
    enum class Base : std::uint8_t { none, stack, params };
    Base base = Base::none;
    std::int64_t offset = 0;
    bool operator==(const Known&) const = default;
  };
  Known known(ValueId value, int depth = 0) const;
  Known known_result(const Value& value, int depth) const;

  const Kernel& kernel_;
  const ControlFlow& flow_;
  const Values& values_;
};

}  // namespace nimble::code::sass
