#include "analyzer/access/sources/observed.h"

#include <algorithm>
#include <iterator>

#include "analyzer/access/kernel_params.h"

namespace nimble::analyzer {

ObservedAccess::ObservedAccess(const Trace& trace, const ObjectTable& table, const Step& step, const Observations& seen,
                               PointersInMemory* in_memory)
    : table_(table), step_(step), seen_(seen), in_memory_(in_memory), hidden_(hidden_memory(trace)) {}

// The launches that were compared: in the step's repeats, and all that are like the one in question.
std::vector<std::uint32_t> ObservedAccess::launches_to_look_at(const OpQuestion& op) const {
  std::vector<std::uint32_t> calls = seen_.alike(step_.calls()[op.op]);
  for (std::uint32_t k = 0; k < step_.begins.size(); ++k) {
    std::uint32_t index = step_.calls_of(k)[op.op];
    if (op.trace.calls[index].function == op.call.function && seen_.compared(index)) calls.push_back(index);
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

bool ObservedAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  if (op.call.kind != CallKind::launch || op.op == kNone || !seen_.any()) return false;
  const TraceFunction& function = op.trace.functions[op.call.function];
  // Sources before this one have given the reason.
  if (why_parameters_do_not_tell(op) || !hidden_.empty() || function.image == kNone || !function.self_contained)
    return false;
  if (function.code == 0) {
    why_not = "its code could not be read, so that it cannot be recognised";
    return false;
  }
  const std::vector<std::uint32_t> past_ends = seen_.past_ends(step_.calls()[op.op]);
  for (const ParamLayout& param : *function.params)
    if (has_stray_address(op, param, past_ends)) {
      why_not = "its parameters may hold addresses of unknown memory, which was not seen";
      return false;
    }
  std::vector<PointerWord> pointers;
  std::copy_if(op.pointers.begin(), op.pointers.end(), std::back_inserter(pointers), [&](const PointerWord& word) {
    return !std::binary_search(past_ends.begin(), past_ends.end(), word.at);
  });
  const Seen seen = look_at_launches(op, pointers, past_ends);
  if (!seen.enough) {
    why_not = "what it writes was seen in " + std::to_string(seen.whole) + (seen.whole == 1 ? " launch" : " launches") +
              " like it (the step came " + std::to_string(step_.begins.size()) + " times)" +
              (seen.whole >= kLeastObservations ? ", and not for all of its pointers" : "");
    return false;
  }
  const std::vector<std::uint8_t> writes = written_words(op, pointers, seen);
  // No kernel exists to write nothing: what it stored was there already, for example because the program does the same
  // again and gets the same memory for it.
  if (seen_.of(op.call.function).empty() && std::ranges::none_of(writes, [](std::uint8_t each) { return each != 0; })) {
    why_not = "it was not seen to write anything";
    return false;
  }
  std::vector<std::uint32_t> reached;
  if (!follow(op, pointers, seen.followed_none, reached, why_not)) return false;
  for (const std::uint32_t object : reached) add_whole_object(object, pointers.front().at, true, found);
  for (std::size_t i = 0; i < pointers.size(); ++i) add_whole({&pointers[i], 1}, writes[i] != 0, found);
  return true;
}

ObservedAccess::Seen ObservedAccess::look_at_launches(const OpQuestion& op, std::span<const PointerWord> pointers,
                                                      std::span<const std::uint32_t> past_ends) const {
  Seen result;
  result.written.resize(pointers.size());
  std::vector<std::uint32_t> launches(pointers.size());  // in which the word was a pointer, and all was compared
  std::vector<std::uint32_t> nowhere(past_ends.size());  // in which the word led nowhere
  for (std::uint32_t index : launches_to_look_at(op)) {
    const Sight sight = seen_.look(index);
    result.whole += sight.whole;
    const auto there = table_.pointers(index);
    result.followed_none = result.followed_none && seen_.was_plain(index);
    const std::vector<std::uint32_t>& led_nowhere = op.trace.calls[index].nowhere;
    for (std::size_t i = 0; i < past_ends.size(); ++i)
      nowhere[i] += std::binary_search(led_nowhere.begin(), led_nowhere.end(), past_ends[i]);
    for (std::size_t i = 0, j = 0; i < pointers.size(); ++i) {
      while (j < there.size() && there[j].at < pointers[i].at) ++j;
      if (j == there.size() || there[j].at != pointers[i].at) continue;
      launches[i] += sight.whole;
      result.written[i] |= sight.written[j];
    }
  }
  const auto enough = [](std::uint32_t count) { return count >= kLeastObservations; };
  result.enough = enough(result.whole) && std::ranges::all_of(launches, enough) && std::ranges::all_of(nowhere, enough);
  return result;
}

std::vector<std::uint8_t> ObservedAccess::written_words(const OpQuestion& op, std::span<const PointerWord> pointers,
                                                        const Seen& seen) const {
  std::vector<std::uint8_t> writes = seen.written;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    // If several words led to one object then, and lead to one now, it is not known which of them was used.
    const auto elsewhere = [&](const WrittenWords& written) {
      return std::ranges::find(written.at, pointers[i].at) != written.at.end() &&
             std::ranges::all_of(written.at, [&](std::uint32_t at) {
               const PointerWord* other = pointer_at(op, at);
               return other != nullptr && other->object == pointers[i].object;
             });
    };
    if (std::ranges::any_of(seen_.of(op.call.function), elsewhere)) writes[i] = 1;
  }
  return writes;
}

bool ObservedAccess::follow(const OpQuestion& op, std::span<const PointerWord> pointers, bool followed_none,
                            std::vector<std::uint32_t>& reached, std::string& why_not) const {
  if (in_memory_ == nullptr) return true;
  std::vector<std::uint32_t> from;
  for (const PointerWord& pointer : pointers) from.push_back(pointer.object);
  std::string why;
  // It may have followed pointers. The program may put others there until the graph runs.
  const bool may_follow = !followed_none || op.trace.functions[op.call.function].follows_memory;
  const bool by_graph = may_follow && is_node_of_a_graph(op.call);
  const auto fresh = [&](std::uint32_t object) { return in_memory_->fresh(object, why); };
  const char* const not_its_own =
      "it may follow pointers in memory that its graph does not fill: there were addresses when it was watched";
  if (by_graph && !std::ranges::all_of(from, fresh)) {
    why_not = not_its_own;
    return false;
  }
  if (!from.empty() && !in_memory_->reachable(from, reached, why)) {
    why_not = "it may follow pointers in memory, and it is not known what is there: " + why;
    return false;
  }
  if (by_graph && !std::ranges::all_of(reached, fresh)) {
    why_not = not_its_own;
    return false;
  }
  return true;
}

}  // namespace nimble::analyzer
