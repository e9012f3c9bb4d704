#include "analyzer/access/kernel_params.h"

#include <algorithm>

#include "nimble/internal/launch_attributes.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

std::optional<std::string> why_parameters_do_not_tell(const OpQuestion& op) {
  const auto& layout = op.trace.functions[op.call.function].params;
  if (!layout) return "its parameter layout is unknown";
  if (!layout->empty() && op.call.params.empty()) return "its parameters were not recorded";
  if (op.call.cooperative) return "it is a cooperative launch";
  if (op.trace.functions[op.call.function].name.find("reverse_iterator") != std::string::npos)
    return "it takes a reverse iterator, which starts where memory ends";
  if (!std::ranges::all_of(op.call.attributes, only_changes_how_it_runs)) return "it was launched with attributes";
  return std::nullopt;
}

std::string hidden_memory(const Trace& trace, bool textures) {
  for (const TraceCall& call : trace.calls) {
    bool external = call.kind == CallKind::alloc && call.memory == MemoryKind::external;
    if ((call.kind != CallKind::hidden && !external) || call.result != 0) continue;
    if (call.texture && !textures) continue;
    if (!call.note.empty()) return call.note;
    return call.symbol.empty() ? "something unnamed" : call.symbol;
  }
  return {};
}

const PointerWord* pointer_at(const OpQuestion& op, std::uint32_t at) {
  auto before = [](const PointerWord& pointer, std::uint32_t place) { return pointer.at < place; };
  auto found = std::lower_bound(op.pointers.begin(), op.pointers.end(), at, before);
  return found != op.pointers.end() && found->at == at ? &*found : nullptr;
}

const PointerWord* pointer_that_meets(const OpQuestion& op, std::uint32_t at, std::uint32_t bytes) {
  const auto is_before = [](const PointerWord& word, std::uint32_t place) { return word.at + 8 <= place; };
  const auto found = std::lower_bound(op.pointers.begin(), op.pointers.end(), at, is_before);
  return found != op.pointers.end() && found->at < at + bytes ? &*found : nullptr;
}

std::vector<std::uint32_t> pointer_words(const OpQuestion& op) {
  std::vector<std::uint32_t> words;
  for (const PointerWord& pointer : op.pointers)
    if (pointer.at < kAtGlobals) words.push_back(pointer.at);
  return words;
}

void pin_number(const OpQuestion& op, std::uint32_t at, std::uint32_t bytes, PinnedBytes& pieces) {
  if (at + bytes <= op.call.params.size() && pointer_that_meets(op, at, bytes) == nullptr) pieces.add({at, bytes});
}

std::span<const PointerWord> pointers_in(const OpQuestion& op, const ParamLayout& param) {
  auto before = [](const PointerWord& pointer, std::uint32_t at) { return pointer.at < at; };
  auto first = std::lower_bound(op.pointers.begin(), op.pointers.end(), param.offset, before);
  auto last = std::lower_bound(first, op.pointers.end(), param.offset + param.size, before);
  return {first, last};
}

namespace {

// Whether the driver knows of no memory there, nor of any that the word may stand for.
bool leads_nowhere(const OpQuestion& op, std::uint32_t at) {
  return std::ranges::binary_search(op.call.nowhere, at) && !is_unsure(op, at);
}

}  // namespace

bool may_lead_elsewhere(const OpQuestion& op, std::uint32_t at) {
  return could_be_address(word_at(op.call.params, at)) && !leads_nowhere(op, at);
}

bool leads_to_unknown(const OpQuestion& op, std::uint32_t at) {
  if (pointer_at(op, at) != nullptr) return is_unsure(op, at);
  return word_at(op.call.params, at) != 0 && !leads_nowhere(op, at);
}

bool is_unsure(const OpQuestion& op, std::uint32_t at) {
  return std::ranges::binary_search(op.unsure, at, {}, &PointerWord::at);
}

bool is_unsure(const OpQuestion& op, const ParamLayout& param) {
  const auto found = std::ranges::lower_bound(op.unsure, param.offset, {}, &PointerWord::at);
  return found != op.unsure.end() && found->at < param.offset + param.size;
}

bool is_unsure_near(const OpQuestion& op, std::uint32_t at) {
  const auto found = std::ranges::lower_bound(op.unsure, at < 7 ? 0 : at - 7, {}, &PointerWord::at);
  return found != op.unsure.end() && found->at < at + 8;
}

bool has_stray_address(const OpQuestion& op, const ParamLayout& param, std::span<const std::uint32_t> but) {
  for (const PointerWord& word : op.unsure)
    if (word.at >= param.offset && word.at < param.offset + param.size && !std::ranges::binary_search(but, word.at))
      return true;
  auto known = pointers_in(op, param);
  for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8) {
    if (!may_lead_elsewhere(op, at) || std::binary_search(but.begin(), but.end(), at)) continue;
    if (std::none_of(known.begin(), known.end(), [&](const PointerWord& pointer) { return pointer.at == at; }))
      return true;
  }
  return false;
}

void add_whole_object(std::uint32_t object, std::uint32_t at, bool writes, std::vector<Access>& found) {
  Access access;
  access.object = object;
  access.whole = true;
  access.reads = true;
  access.writes = writes;
  access.at = at;
  found.push_back(access);
}

void add_whole(std::span<const PointerWord> pointers, bool writes, std::vector<Access>& found) {
  for (const PointerWord& pointer : pointers) add_whole_object(pointer.object, pointer.at, writes, found);
}

}  // namespace nimble::analyzer
