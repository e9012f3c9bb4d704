#include "analyzer/pointers/observations.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "analyzer/base/hash.h"

namespace nimble::analyzer {
namespace {

using Ranges = std::vector<TraceProbe::Range>;

// How far past an object's end a word may be that was computed from it: the driver's pools align to as much. cuDNN's
// are 16 bytes past the end (H200, convolutions of DARTS).
constexpr std::uint64_t kJustPastEnd = 512;

bool holds(const Ranges& compared, const Object& object) {
  auto found =
      std::lower_bound(compared.begin(), compared.end(), object.base,
                       [](const TraceProbe::Range& range, std::uint64_t base) { return range.address < base; });
  return found != compared.end() && *found == TraceProbe::Range{object.base, object.size};
}

bool meets(const Ranges& written, const Object& object) {
  auto found = std::partition_point(written.begin(), written.end(), [&](const TraceProbe::Range& range) {
    return range.address + range.bytes <= object.base;
  });
  return found != written.end() && found->address - object.base < object.size;
}

}  // namespace

Observations::Observations(const Trace& trace, const ObjectTable& objects)
    : trace_(trace),
      objects_(objects),
      by_function_(trace.functions.size()),
      launches_(trace.functions.size()),
      addresses_(trace.functions.size()),
      plain_(trace.functions.size()),
      past_ends_(trace.functions.size()) {
  if (trace.probes.empty()) return;
  for (std::uint32_t call = 0; call < trace.calls.size(); ++call)
    if (trace.calls[call].kind == CallKind::launch && compared(call)) gather_past_ends(call);
  for (std::uint32_t call = 0; call < trace.calls.size(); ++call)
    if (trace.calls[call].kind == CallKind::launch && compared(call)) gather(call);
}

Sight Observations::look(std::uint32_t call) const {
  const TraceProbe& probe = trace_.probes[trace_.calls[call].probe];
  Sight sight;
  sight.whole = true;
  for (const PointerWord& pointer : objects_.pointers(call)) {
    const Object& object = objects_.objects()[pointer.object];
    bool known = holds(probe.compared, object);
    sight.whole = sight.whole && known;
    sight.written.push_back(known && meets(probe.written, object));
  }
  return sight;
}

bool Observations::was_plain(std::uint32_t call, std::uint32_t object) const {
  if (!compared(call)) return false;
  const TraceProbe& probe = trace_.probes[trace_.calls[call].probe];
  return probe.plain && holds(probe.compared, objects_.objects()[object]);
}

bool Observations::was_plain(std::uint32_t call) const {
  return std::ranges::all_of(objects_.pointers(call),
                             [&](const PointerWord& pointer) { return was_plain(call, pointer.object); });
}

bool Observations::stores_none(std::uint32_t call) const {
  const std::uint32_t function = trace_.calls[call].function;
  if (!any_ || launches_[function] < kLeastObservations || addresses_[function] != 0) return false;
  std::uint32_t whole = 0;
  for (const std::uint32_t other : alike(call)) {
    if (!was_plain(other)) return false;
    whole += look(other).whole && objects_.unsure(other).empty();
  }
  return whole >= kLeastObservations;
}

void Observations::gather_past_ends(std::uint32_t call) {
  const TraceCall& launch = trace_.calls[call];
  for (const std::uint32_t at : launch.nowhere) {
    for (const PointerWord& pointer : objects_.pointers(call)) {
      if (pointer.at >= kAtGlobals) break;
      const std::uint64_t word = word_at(launch.params, at);
      const WordPastEnd past_end{at, pointer.at, word - word_at(launch.params, pointer.at)};
      if (is_past_end(call, past_end)) ++past_ends_[launch.function][past_end];
    }
  }
}

bool Observations::is_past_end(std::uint32_t call, const WordPastEnd& word) const {
  const std::vector<std::uint8_t>& params = trace_.calls[call].params;
  const auto pointers = objects_.pointers(call);
  const auto found = std::lower_bound(pointers.begin(), pointers.end(), word.pointer,
                                      [](const PointerWord& each, std::uint32_t at) { return each.at < at; });
  if (found == pointers.end() || found->at != word.pointer) return false;
  const Object& object = objects_.objects()[found->object];
  const std::uint64_t value = word_at(params, word.at);
  return value - word_at(params, word.pointer) == word.distance && value >= object.base + object.size &&
         value - object.base - object.size < kJustPastEnd;
}

std::vector<std::uint32_t> Observations::past_ends(std::uint32_t call) const {
  std::vector<std::uint32_t> result;
  for (const auto& [word, launches] : past_ends_[trace_.calls[call].function])
    if (launches >= kLeastObservations && (result.empty() || result.back() != word.at) && is_past_end(call, word))
      result.push_back(word.at);
  return result;
}

Observations::Common Observations::common(std::uint32_t call) const {
  Common result{{}, past_ends(call), trace_.calls[call].params};
  for (const PointerWord& pointer : objects_.pointers(call))
    if (!std::binary_search(result.past_ends.begin(), result.past_ends.end(), pointer.at))
      result.pointers.push_back(pointer.at);
  for (const auto* words : {&result.pointers, &result.past_ends})
    for (const std::uint32_t at : *words)
      if (at < kAtGlobals) std::memset(result.params.data() + at, 0, sizeof(std::uint64_t));
  return result;
}

std::uint64_t Observations::likeness(std::uint32_t call) const {
  const TraceCall& launch = trace_.calls[call];
  const Common same = common(call);
  Hasher hash;
  hash.add(launch.function);
  for (const auto& shape : {launch.grid, launch.block})
    for (std::uint32_t dimension : shape) hash.add(dimension);
  hash.add(launch.shared_bytes);
  for (const std::uint32_t at : same.pointers) hash.add(at);
  hash.add(std::string_view(reinterpret_cast<const char*>(same.params.data()), same.params.size()));
  return hash.value();
}

bool Observations::are_alike(std::uint32_t one, std::uint32_t other) const {
  const TraceCall &a = trace_.calls[one], &b = trace_.calls[other];
  return a.function == b.function && a.grid == b.grid && a.block == b.block && a.shared_bytes == b.shared_bytes &&
         common(one) == common(other);
}

std::vector<std::uint32_t> Observations::alike(std::uint32_t call) const {
  std::vector<std::uint32_t> result;
  const auto found = alike_.find(likeness(call));
  if (found == alike_.end()) return result;
  for (const std::uint32_t other : found->second)
    if (are_alike(call, other)) result.push_back(other);
  return result;
}

void Observations::gather(std::uint32_t call) {
  any_ = true;
  alike_[likeness(call)].push_back(call);
  std::uint32_t function = trace_.calls[call].function;
  ++launches_[function];
  plain_[function] += was_plain(call);
  addresses_[function] += trace_.probes[trace_.calls[call].probe].addresses;
  if (trace_.probes[trace_.calls[call].probe].written.empty()) return;
  Sight sight = look(call);
  auto pointers = objects_.pointers(call);
  std::map<std::uint32_t, std::vector<std::uint32_t>> words;  // by object
  for (std::size_t i = 0; i < pointers.size(); ++i)
    if (sight.written[i]) words[pointers[i].object].push_back(pointers[i].at);
  std::vector<WrittenWords>& known = by_function_[function];
  for (auto& [object, at] : words) {
    auto same = std::find_if(known.begin(), known.end(), [&](const WrittenWords& each) { return each.at == at; });
    if (same == known.end()) same = known.insert(known.end(), {std::move(at), {}});
    same->calls.push_back(call);
  }
}

}  // namespace nimble::analyzer
