#include "analyzer/access/sources/observed.h"

#include <algorithm>
#include <iterator>

#include "analyzer/access/kernel_params.h"

namespace nimble::analyzer {
namespace {

// What the launches tell of one word of the parameters.
struct Word {
  std::uint32_t launches = 0;  // in which it was a pointer, and all was compared
  bool written = false;
};

}  // namespace

ObservedAccess::ObservedAccess(const Trace& trace, const ObjectTable& table, const Step& step, const Observations& seen,
                               HeldPointers* held)
    : table_(table), step_(step), seen_(seen), held_(held), hidden_(hidden_memory(trace)) {}

// Those that were compared: in the step's repeats, and all that are like the one in question.
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
  // Sources before this one have said why.
  if (why_parameters_do_not_tell(op) || !hidden_.empty() || function.image == kNone || !function.self_contained)
    return false;
  if (function.code == 0) {
    why_not = "its code could not be read, so that it cannot be known again";
    return false;
  }
  const std::vector<std::uint32_t> behind = seen_.behind(step_.calls()[op.op]);
  for (const ParamLayout& param : *function.params)
    if (has_stray_address(op, param, behind)) {
      why_not = "its parameters may hold addresses of unknown memory, which was not seen";
      return false;
    }

  std::vector<PointerWord> pointers;
  std::copy_if(op.pointers.begin(), op.pointers.end(), std::back_inserter(pointers),
               [&](const PointerWord& word) { return !std::binary_search(behind.begin(), behind.end(), word.at); });
  std::vector<Word> words(pointers.size());
  std::vector<std::uint32_t> nowhere(behind.size());  // in how many of the launches these words led nowhere
  std::uint32_t whole = 0;
  bool followed_none = true;
  for (std::uint32_t index : launches_to_look_at(op)) {
    Sight sight = seen_.look(index);
    whole += sight.whole;
    auto there = table_.pointers(index);
    followed_none = followed_none && seen_.was_plain(index);
    const std::vector<std::uint32_t>& led_nowhere = op.trace.calls[index].nowhere;
    for (std::size_t i = 0; i < behind.size(); ++i)
      nowhere[i] += std::binary_search(led_nowhere.begin(), led_nowhere.end(), behind[i]);
    for (std::size_t i = 0, j = 0; i < pointers.size(); ++i) {
      while (j < there.size() && there[j].at < pointers[i].at) ++j;
      if (j == there.size() || there[j].at != pointers[i].at) continue;
      words[i].launches += sight.whole;
      words[i].written = words[i].written || sight.written[j];
    }
  }
  bool enough = whole >= kLeastObservations;
  for (const Word& word : words) enough = enough && word.launches >= kLeastObservations;
  for (const std::uint32_t launches : nowhere) enough = enough && launches >= kLeastObservations;
  if (!enough) {
    why_not = "what it writes was seen in " + std::to_string(whole) + (whole == 1 ? " launch" : " launches") +
              " like it (the step came " + std::to_string(step_.begins.size()) + " times)" +
              (whole >= kLeastObservations ? ", and not for all of its pointers" : "");
    return false;
  }
  // No kernel is there to write nothing: what it stored was there already, as where a program does the same again and
  // gets the same memory for it.
  const auto others = seen_.of(op.call.function);
  const auto writes = [&](std::size_t word) {
    // Of several words that led to one object there, and lead to one here, nobody knows which it was.
    const auto elsewhere = [&](const WrittenWords& written) {
      return std::ranges::find(written.at, pointers[word].at) != written.at.end() &&
             std::ranges::all_of(written.at, [&](std::uint32_t at) {
               const PointerWord* other = pointer_at(op, at);
               return other != nullptr && other->object == pointers[word].object;
             });
    };
    return words[word].written || std::any_of(others.begin(), others.end(), elsewhere);
  };
  bool writes_any = !others.empty();
  for (std::size_t i = 0; i < words.size(); ++i) writes_any = writes_any || writes(i);
  if (!writes_any) {
    why_not = "it was not seen to write anything";
    return false;
  }
  std::vector<std::uint32_t> from, reached;
  for (const PointerWord& pointer : pointers) from.push_back(pointer.object);
  std::string why;
  // It may have followed pointers. What lies there when the graph runs, the program may put there until then.
  const bool by_graph = held_ != nullptr && !followed_none && is_node_of_a_graph(op.call);
  const auto fresh = [&](std::uint32_t object) { return held_->fresh(object, why); };
  const char* const not_its_own =
      "it may follow pointers in memory that its graph does not fill: addresses lay there when it was seen";
  if (by_graph && !std::ranges::all_of(from, fresh)) {
    why_not = not_its_own;
    return false;
  }
  if (held_ != nullptr && !from.empty() && !held_->reachable(from, reached, why)) {
    why_not = "it may follow pointers in memory, and what lies there is not known: " + why;
    return false;
  }
  if (by_graph && !std::ranges::all_of(reached, fresh)) {
    why_not = not_its_own;
    return false;
  }
  for (const std::uint32_t object : reached) add_whole_object(object, pointers.front().at, true, found);
  for (std::size_t i = 0; i < words.size(); ++i) add_whole({&pointers[i], 1}, writes(i), found);
  return true;
}

}  // namespace nimble::analyzer
