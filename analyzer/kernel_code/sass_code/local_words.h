// What a kernel keeps in local memory: for each word all that is ever stored there, where that is known.
//
// It is where the kernel and what it calls store whole words at known places only, and reach local memory by no generic
// address. Refers to the flow and the values, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/kernel.h"
#include "analyzer/kernel_code/sass_code/known_places.h"
#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {

class LocalWords {
 public:
  struct Stored {
    std::uint32_t instruction = 0;
    ValueId value = kNoValue;  // kNoValue: zero
  };

  LocalWords(const Kernel& kernel, const ControlFlow& flow, const Values& values);

  // What may lie in the word that a load takes into its register of that index, in the order of the text; null where
  // that is not known. What was there before anything was stored is not among it.
  const std::vector<Stored>* loaded(std::uint32_t instruction, unsigned index) const;
  // What lies there each time: all that is stored on the ways to the load and not stored over; nothing where that is
  // not known, or nothing may have been stored before.
  std::optional<std::vector<Stored>> reaching(std::uint32_t instruction, unsigned index) const;

 private:
  bool add(std::uint32_t instruction, const MemoryOperand& to);

  const ControlFlow& flow_;
  const Values& values_;
  const KnownPlaces places_;
  std::map<std::int64_t, std::vector<Stored>> words_;  // by their first byte; none where they are not known
  std::vector<std::uint32_t> block_of_;                // by instruction; empty where there are no words
};

}  // namespace nimble::code::sass
