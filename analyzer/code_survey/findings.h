// What the code of one image proves of each of its kernels: for which architectures, from machine code or from PTX.
//
// Plain values; they own all they have. Pure functions; any thread. No errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::analyzer {

// What code was made for: sm_90a is machine code, compute_90 PTX.
struct CodeTarget {
  unsigned arch = 0;
  char variant = '\0';  // 'a' or 'f'
  bool is_ptx = false;

  std::string text() const;
  bool operator==(const CodeTarget&) const = default;
  bool operator<(const CodeTarget& other) const {
    return std::tie(arch, variant, is_ptx) < std::tie(other.arch, other.variant, other.is_ptx);
  }
};

// "90", "90a", "sm_90", "compute_90a": any kind of code for it. Without a letter, all variants.
class TargetFilter {
 public:
  // Nothing if the text names no architecture.
  static std::optional<TargetFilter> of(std::string_view text);
  bool takes(const CodeTarget& target) const;

 private:
  unsigned arch_ = 0;
  char variant_ = '\0';
  std::optional<bool> is_ptx_;
};

// Why something is not understood, and the byte of the code where that was seen. Empty if there is none.
struct Reason {
  std::string cause, place;
};
Reason reason_of(const std::string& why);
// The cause without names that are special to one kernel: what is counted together.
std::string kind_of_cause(const std::string& cause);

// What was found on one target.
struct FindingTarget {
  CodeTarget target;
  std::string place;  // of what is not understood
};

// What was found, and on which targets: on all of them the same, but for the place.
struct Finding {
  std::vector<FindingTarget> targets;  // ascending
  code::PtxProof proof;                // its parameters have no names
  std::string cause;                   // why nothing is proven
};

struct KernelFindings {
  std::string name;
  std::vector<Finding> findings;

  void add(const CodeTarget& target, code::PtxProof proof);
};

// How what PTX proves compares with what machine code proves.
enum class Agreement : std::uint8_t {
  same,           // both prove the same
  neither,        // neither proves anything
  machine_less,   // machine code touches less: the compiler has found that the rest is not needed
  machine_vague,  // it may touch more: where PTX tells one address, it leaves a choice of several
  machine_more,   // it touches what the PTX does not
  only_ptx,       // only the PTX proves something
  only_machine,
};
inline constexpr std::string_view kAgreementNames[] = {"same",
                                                       "neither is understood",
                                                       "machine code touches less",
                                                       "machine code is understood less exactly",
                                                       "machine code touches more",
                                                       "only the PTX is understood",
                                                       "only the machine code is understood"};
// Words are compared by their place in their parameter, and conditions are not: only PTX has them.
Agreement compare(const code::PtxProof& ptx, const code::PtxProof& machine);
// PTX and machine code of one kernel that were made for the same architecture.
void for_each_pair(const KernelFindings& kernel,
                   const std::function<void(const CodeTarget& ptx, const CodeTarget& machine, Agreement)>& each);

}  // namespace nimble::analyzer
