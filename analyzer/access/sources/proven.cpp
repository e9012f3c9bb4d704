#include "analyzer/access/sources/proven.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "analyzer/access/doubts.h"
#include "analyzer/access/kernel_params.h"
#include "analyzer/access/leaving.h"
#include "analyzer/memory/objects.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

namespace {

// The packed parameters that are not pointers, in pieces of 8-byte words: `with(first byte, bytes)`.
template <class With>
void for_each_number(const OpQuestion& op, With with) {
  for (const ParamLayout& param : *op.trace.functions[op.call.function].params) {
    const std::uint32_t end = param.offset + param.size;
    for (std::uint32_t at = param.offset; at < end;) {
      const std::uint32_t count = std::min(8 - at % 8, end - at);
      if (pointer_at(op, at) == nullptr) with(at, count);
      at += count;
    }
  }
}

bool holds(const OpQuestion& op, const ParamCondition& condition) {
  std::uint64_t value = 0;
  if (op.call.params.size() < condition.at + condition.bytes) return true;  // not known
  std::memcpy(&value, op.call.params.data() + condition.at, condition.bytes);
  return (value == condition.value) == condition.equal;
}

// Whether it covers a byte of an address, which differs in the next process and so cannot be relied on.
bool is_of_address(const OpQuestion& op, const ParamCondition& condition) {
  const auto meets = [&](const PointerWord& word) {
    return word.at < condition.at + condition.bytes && condition.at < word.at + 8;
  };
  return std::ranges::any_of(op.pointers, meets) || std::ranges::any_of(op.unsure, meets);
}

// Why a launch does not touch this memory: a condition that does not hold. Null if it may.
const ParamCondition* excluding(const OpQuestion& op, const ProvenAccess& access) {
  const auto found = std::ranges::find_if(
      access.when, [&](const ParamCondition& each) { return !holds(op, each) && !is_of_address(op, each); });
  return found == access.when.end() ? nullptr : &*found;
}

// Whether it may be an address of memory that the trace does not know.
bool may_be_stray(const OpQuestion& op, std::uint32_t at) {
  return is_unsure_near(op, at) || (pointer_at(op, at) == nullptr && may_lead_elsewhere(op, at));
}

// Whether the launch makes an address of others of the access's words, but not of this one, which may point anywhere:
// what an array keeps past its used part may be left of an earlier launch.
bool leaves_alone(const OpQuestion& op, const ProvenAccess& access, std::uint32_t at) {
  const KernelProof& proof = *op.trace.functions[op.call.function].proof;
  if (may_be_stray(op, at)) return takes_others(op, proof, access, at);
  const auto is_taken = [&](std::uint32_t word) {
    return pointer_at(op, word) != nullptr && !takes_others(op, proof, access, word);
  };
  return access.at.size() > 1 && pointer_at(op, at) != nullptr && takes_others(op, proof, access, at) &&
         std::ranges::any_of(access.at, is_taken);
}

bool has_numbers(const OpQuestion& op) {
  bool any = false;
  for_each_number(op, [&](std::uint32_t at, std::uint32_t count) {
    const auto first = op.call.params.begin() + at;
    any |= std::any_of(first, first + count, [](std::uint8_t byte) { return byte != 0; });
  });
  return any;
}

}  // namespace

ProvenAccessSource::ProvenAccessSource(const Trace& trace, bool same_code)
    : hidden_(hidden_memory(trace, !same_code)), same_code_(same_code) {}

bool ProvenAccessSource::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  if (op.call.kind != CallKind::launch) return false;
  const TraceFunction& function = op.trace.functions[op.call.function];
  if (!function.proof) {
    if (same_code_ && !function.why_not_proven.empty()) why_not = "its code proves nothing: " + function.why_not_proven;
    return false;
  }
  if (function.proof->same_code != same_code_) return false;
  if (!hidden_.empty()) {
    why_not = "the program created " + hidden_ + ", so that two addresses may name the same memory";
    return false;
  }
  if (auto why = why_parameters_do_not_tell(op)) {
    why_not = *why;
    return false;
  }
  if (const AddressDoubt* const doubt = doubt_of(op, function.proof->extents)) {
    why_not = "its code proves nothing: " + doubt->why;
    return false;
  }
  std::vector<std::uint32_t> told;  // words whose use the code tells
  for (const ProvenAccess& access : function.proof->accesses) {
    told.insert(told.end(), access.at.begin(), access.at.end());
    if (excluding(op, access)) continue;  // not used, whatever it holds
    why_not = why_not_found(op, access);
    if (!why_not.empty()) return false;
  }
  const auto& globals = function.proof->globals;
  for (std::uint32_t i = 0; i < globals.size(); ++i) {
    told.push_back(kAtGlobals + i);
    if (pointer_at(op, kAtGlobals + i) != nullptr) continue;
    why_not = "for kernels of graphs the address of its variable " + globals[i].name + " is not known";
    return false;
  }
  std::ranges::sort(told);
  if (!same_code_)
    for (const ParamLayout& param : *function.params)
      if (has_stray_address(op, param, told)) {
        why_not =
            "its parameters may hold addresses of unknown memory, and the code that ran is not the code that was read";
        return false;
      }
  add_accesses(op, told, found);
  return true;
}

std::string ProvenAccessSource::why_not_found(const OpQuestion& op, const ProvenAccess& access) {
  const auto is_known = [&](std::uint32_t at) { return pointer_at(op, at) != nullptr; };
  const KernelProof& proof = *op.trace.functions[op.call.function].proof;
  if (std::ranges::none_of(access.at, is_known) && touches_nothing(op, proof, access)) return {};
  bool leads = false, disguised = false;
  for (std::uint32_t at : access.at) {
    if (leaves_alone(op, access, at)) continue;
    const bool pointer = pointer_at(op, at) != nullptr;
    leads |= pointer;
    disguised |= !pointer && word_at(op.call.params, at) != 0;
    if (may_be_stray(op, at) && !stays_inside(op, proof, access, at))
      return "the word at byte " + std::to_string(at) +
             " of its parameters does not point into an allocation that the trace knows";
  }
  // Null is not followed if nothing can be added to it. Anything else may be a pointer with a tag in it, or a part of
  // one.
  if (leads || (!disguised && !has_numbers(op))) return {};
  return "its code makes an address of the word at byte " + std::to_string(access.at.front()) +
         " of its parameters, which is " + (disguised ? "not a pointer" : "null, and it may add others to it");
}

void ProvenAccessSource::add_accesses(const OpQuestion& op, const std::vector<std::uint32_t>& told,
                                      std::vector<Access>& found) const {
  const KernelProof& proof = *op.trace.functions[op.call.function].proof;
  // A write may be partial, as far as the code tells: the rest stays, as if it were read.
  for (const ProvenAccess& access : proof.accesses)
    for (std::uint32_t at : excluding(op, access) ? std::span<const std::uint32_t>() : std::span(access.at))
      if (const PointerWord* pointer = pointer_at(op, at); pointer != nullptr && !leaves_alone(op, access, at))
        add_whole({pointer, 1}, access.writes, found);
  for (std::uint32_t i = 0; i < proof.globals.size(); ++i)
    add_whole({pointer_at(op, kAtGlobals + i), 1}, proof.globals[i].writes, found);
  add_left_objects(op, proof.extents, found);
  if (same_code_) return;
  for (const PointerWord& pointer : op.pointers)
    if (!std::ranges::binary_search(told, pointer.at)) add_whole({&pointer, 1}, true, found);
}

void ProvenAccessSource::pin(const OpQuestion& op, Pinned& pinned) {
  const KernelProof& proof = *op.trace.functions[op.call.function].proof;
  pin_extents(op, proof.extents, pinned);
  pin_doubts(op, proof.extents, pinned);
  bool leads = true;
  for (const ProvenAccess& access : proof.accesses) {
    if (const ParamCondition* const why = excluding(op, access)) {
      pinned.params.add({why->at, why->bytes});
      continue;
    }
    for (const std::uint32_t at : access.at)
      if (leaves_alone(op, access, at) || (may_be_stray(op, at) && stays_inside(op, proof, access, at)))
        pin_others(op, proof, access, at, pinned);
    if (std::ranges::any_of(access.at, [&](std::uint32_t at) { return pointer_at(op, at) != nullptr; })) continue;
    const bool is_nothing = touches_nothing(op, proof, access);
    if (is_nothing) pin_nothing(op, proof, access, pinned);
    leads &= is_nothing;
  }
  if (leads) return;
  for_each_number(op, [&](std::uint32_t at, std::uint32_t count) { pinned.params.add({at, count}); });
}

bool ProvenAccessSource::is_pointer(const OpQuestion& op, std::uint32_t at) {
  if (!same_code_) return true;
  const KernelProof& proof = *op.trace.functions[op.call.function].proof;
  bool named = false, followed = false;
  for (const ProvenAccess& access : proof.accesses) {
    if (std::ranges::find(access.at, at) == access.at.end()) continue;
    named = true;
    followed |= excluding(op, access) == nullptr && !leaves_alone(op, access, at);
  }
  const bool left_alone = named && !followed && std::ranges::find(proof.stored, at) == proof.stored.end();
  return followed || (!left_alone && pointer_at(op, at) != nullptr);
}

}  // namespace nimble::analyzer
