// What lies in shared and in local memory, and what loads bring from there and from elsewhere.
#include <algorithm>
#include <string_view>

#include "analyzer/kernel_code/sass_flow/contents_flow.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kTransposedAt = 78;  // of LDSM and STSM

}  // namespace

bool ContentsFlow::is_own(const Address& address) {
  const std::vector<Root>& high = contents_.sets().roots(address.high.high);
  return !address.high.number && !high.empty() && std::all_of(high.begin(), high.end(), [&](Root root) {
    return root == contents_.special(kRootOfLocal) || root == contents_.special(kRootOfShared);
  });
}

// A barrier is a word of shared memory. One is made by an exchange; else what it counts is put there.
void ContentsFlow::exchange(std::uint32_t at) {
  Content all = kNumber;
  for (const Registers& registers : flow_.instructions[at].read)
    if (registers.file == File::r || registers.file == File::ur)
      for (unsigned i = 0; i < registers.count; ++i) all = contents_.either(all, of_registers(at, registers, i));
  join_memory(shared_, all, shared_readers_);
}

// Of a matrix that is transposed a register has halves of two words.
Content ContentsFlow::in_shared(std::uint32_t at, bool is_small) {
  const bool is_transposed =
      flow_.instructions[at].name == std::string_view("LDSM") && flow_.word(at).bit(kTransposedAt);
  if (is_transposed) return contents_.either(shared_, contents_.weak(shared_));
  return is_small ? contents_.weak(shared_) : shared_;
}

std::vector<Content> ContentsFlow::loaded(std::uint32_t at, const MemoryOperand& from, unsigned count) {
  std::vector<Content> all(count, kNumber);
  const bool is_small = from.bytes != 0 && from.bytes < 4;
  const Root memory = contents_.special(kRootOfMemory);
  Content in_memory = contents_.either_half(memory);
  switch (from.space) {
    case Space::shared:
    case Space::cluster:
      for (Content& each : all) each = in_shared(at, is_small);
      return all;
    case Space::local:
      for (unsigned i = 0; i < count; ++i)
        all[i] = is_small ? contents_.weak(in_local(at, from, i)) : in_local(at, from, i);
      return all;
    case Space::generic: {
      const Address where = address(at, from);
      const RootSet roots = contents_.sets().common(where.low.low, where.high.high);
      if (is_own(where)) in_memory = {};
      if (contents_.sets().has(where.high.high, contents_.special(kRootOfLocal)))
        in_memory = contents_.either(in_memory, all_local_);
      if (contents_.sets().has(roots, contents_.special(kRootOfParams)))
        in_memory = contents_.either(in_memory, any_parameter(4, 0));
      in_memory = contents_.either(in_memory, shared_);
      break;
    }
    default:
      break;
  }
  for (unsigned i = 0; i < count; ++i) {
    // Words of a wide load are what their places say.
    Content each = in_memory;
    if (from.space == Space::global && count % 2 == 0 && count > 1)
      each = i % 2 == 0 ? contents_.low(memory) : contents_.high(memory);
    all[i] = is_small ? contents_.weak(each) : each;
  }
  return all;
}

void ContentsFlow::store(std::uint32_t at, const MemoryOperand& to, const Content& what) {
  const bool is_small = to.bytes != 0 && to.bytes < 4;
  const bool is_transposed =
      flow_.instructions[at].name == std::string_view("STSM") && flow_.word(at).bit(kTransposedAt);
  Content stored = is_small ? contents_.weak(what) : what;
  if (is_transposed) stored = contents_.either(what, contents_.weak(what));
  switch (to.space) {
    case Space::shared:
    case Space::cluster:
      return join_memory(shared_, stored, shared_readers_);
    case Space::local:
      return to_local(at, to, stored);
    case Space::generic: {
      const Address where = address(at, to);
      if (contents_.sets().has(where.high.high, contents_.special(kRootOfLocal))) to_local(at, {}, stored);
      return join_memory(shared_, stored, shared_readers_);
    }
    default:
      return;
  }
}

Content ContentsFlow::in_local(std::uint32_t at, const MemoryOperand& from, unsigned index) {
  const auto place = places_.in_local(at, from);
  if (!place) return contents_.either(all_local_, anywhere_local_);
  const std::int64_t word = (*place + std::int64_t{4} * index) & ~std::int64_t{3};
  const auto found = local_.find(word);
  return found == local_.end() ? anywhere_local_ : contents_.either(found->second, anywhere_local_);
}

// One register after the other, as it is stored.
void ContentsFlow::to_local(std::uint32_t at, const MemoryOperand& to, const Content& what) {
  join_memory(all_local_, what, local_readers_);
  const auto place = places_.in_local(at, to);
  if (!place) return join_memory(anywhere_local_, what, local_readers_);
  for (const Registers& registers : flow_.instructions[at].read) {
    if (registers.file != File::r || registers.at == kAtA) continue;
    for (unsigned i = 0; i < registers.count; ++i) {
      const std::int64_t word = (*place + std::int64_t{4} * i) & ~std::int64_t{3};
      Content each = of_registers(at, registers, i);
      if (to.bytes < 4) each = contents_.weak(each);
      join_memory(local_[word], each, local_readers_);
    }
  }
}

}  // namespace nimble::code::sass
