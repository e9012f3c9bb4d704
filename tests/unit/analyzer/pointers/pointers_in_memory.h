// A step of a few ops, repeated, whose kernels reach memory over pointers in memory: for the tests of what they reach
// (pointer_flow_test.cpp) and of where they put pointers (kernel_flow_test.cpp).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analyzer/output/schedule_builder.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer::test {

inline constexpr std::uint64_t kA = 0x100000, kB = 0x200000, kC = 0x300000, kTable = 0x400000, kStaging = 0x500000,
                               kPinned = 0x7f0000000000, kPool = 0x600000, kSize = 0x1000, kTableBytes = 16;
inline constexpr const char* kTwo = "[[0,8],[8,8]]";

class Program {
 public:
  Program() {
    text.image(true);
    text.image(false);
    reads_ = text.function("_Z5readsPKPKfPf", kTwo);    // a table, and what it writes itself
    writes_ = text.function("_Z6writesPKPfPKf", kTwo);  // a table that it writes through
    fills_ = text.function("_Z5fillsPPfS_S_", "[[0,8],[8,8],[16,8]]");
    by_class_ = text.function("_Z8by_class5Batch", "[[0,16]]");
    anything_ = text.function("_Z8anythingPvPf", kTwo);
    unknown_ = text.function("unknown", kTwo, 1);
    plain_ = text.function("_Z5plainPfPKf", kTwo);
    // Of which only its launches tell; the one could be known again, the other could not.
    seen_ = text.function("seen", kTwo, 0, ",\"code\":\"00000000000000ab\"");
    nameless_ = text.function("nameless", kTwo);
    text.stream();
    for (const std::uint64_t address : {kA, kB, kC}) text.alloc(address, kSize);
    for (const std::uint64_t address : {kTable, kStaging}) text.alloc(address, kTableBytes);
    text.alloc(kPinned, kSize, "pinned");
  }

  // A copy of a table from the host: these pointers in sequence.
  void upload(std::uint64_t to, const std::vector<std::uint64_t>& pointers, const std::string& more = "",
              std::uint64_t from = kPinned) {
    std::string words;
    for (std::size_t i = 0; i < pointers.size(); ++i)
      words += (i ? ",[" : "[") + std::to_string(8 * i) + "," + std::to_string(pointers[i]) + "]";
    text.copy(to, from, kTableBytes, 0, ",\"words\":[" + words + "]" + more);
  }
  void reads(std::uint64_t table, std::uint64_t out = kC) { text.launch(reads_, hex(table) + hex(out)); }
  void writes(std::uint64_t table, std::uint64_t in = kC, const std::string& more = "") {
    text.launch(writes_, hex(table) + hex(in), 0, more);
  }
  void fills(std::uint64_t table, std::uint64_t a, std::uint64_t b) {
    text.launch(fills_, hex(table) + hex(a) + hex(b));
  }
  void by_class(std::uint64_t first, std::uint64_t second, const std::string& more = "") {
    text.launch(by_class_, hex(first) + hex(second), 0, more);
  }
  // The same of which something is known.
  void batched(const std::string& known, std::uint64_t first, std::uint64_t second, int image) {
    const auto [found, is_new] = batched_.try_emplace(known);
    if (is_new) found->second = text.function("_Z7batched5Batch", "[[0,16]]", image, known);
    text.launch(found->second, hex(first) + hex(second));
  }
  void anything(std::uint64_t data, std::uint64_t out = kC) { text.launch(anything_, hex(data) + hex(out)); }
  void unknown(std::uint64_t a, std::uint64_t b) { text.launch(unknown_, hex(a) + hex(b)); }
  void plain(std::uint64_t out, std::uint64_t in) { text.launch(plain_, hex(out) + hex(in)); }

  // Of which only its launches tell.
  void untyped(std::uint64_t a, std::uint64_t b, bool known_code, const std::string& more = "", int grid = 8) {
    text.launch(known_code ? seen_ : nameless_, hex(a) + hex(b), 0, more, grid);
  }

  // What a probe reports of these objects.
  static std::string compared(const std::vector<std::uint64_t>& all, const std::vector<std::uint64_t>& written) {
    std::string result;
    for (const auto& [key, list] : {std::pair{"compared", &all}, std::pair{"written", &written}}) {
      result.append(",\"").append(key).append("\":[");
      for (const std::uint64_t base : *list)
        result.append(result.back() == '[' ? "[" : ",[").append(std::to_string(base)) +=
            "," + std::to_string(base < kTable ? kSize : kTableBytes) + "]";
      result.append("]");
    }
    return result;
  }

  // Launched before the step, and memory was searched after it.
  void looked(const std::vector<std::uint64_t>& compared, const char* found = ",\"plain\":true", bool leaks = false) {
    std::string list;
    for (const std::uint64_t base : compared)
      list.append(list.empty() ? "[" : ",[").append(std::to_string(base)) +=
          "," + std::to_string(base < kTable ? kSize : kTableBytes) + "]";
    text.launch(leaks ? unknown_ : plain_, hex(kA) + hex(kTable), 0,
                ",\"compared\":[" + list + "],\"written\":[]" + found);
  }

  TraceText text;

 private:
  std::map<std::string, int> batched_;
  int seen_, nameless_, reads_, writes_, fills_, by_class_, anything_, unknown_, plain_;
};

struct Result {
  Analysis analysis;

  // What op `op` touches: "A:r C:rw", in the order of letters; or "?" and why.
  std::string text(std::uint32_t op) const {
    const OpAccesses& entry = analysis.evidence.accesses.ops[op];
    if (entry.role == OpRole::barrier) return "? " + analysis.evidence.accesses.reasons[entry.why];
    std::set<std::string> each;
    for (const Access& access : analysis.evidence.accesses.of(op)) {
      const Object& object = analysis.input.table->objects()[analysis.objects.objects[access.object].id];
      const char* name = "?";
      for (const auto& [base, letter] :
           {std::pair{kA, "A"}, {kB, "B"}, {kC, "C"}, {kTable, "T"}, {kStaging, "S"}, {kPinned, "P"}, {kPool, "L"}})
        if (object.base == base) name = letter;
      each.insert(std::string(name).append(access.reads ? ":r" : ":").append(access.writes ? "w" : ""));
    }
    std::string result;
    for (const std::string& one : each) result.append(result.empty() ? "" : " ").append(one);
    return result;
  }
  bool unknown(std::uint32_t op, const std::string& why) const {
    return text(op).rfind("? ", 0) == 0 && text(op).find(why) != std::string::npos;
  }
  Schedule schedule() const { return build_schedule(analysis); }
};

inline Result repeated(const std::function<void(Program&)>& step, const std::function<void(Program&)>& before = nullptr,
                       const std::string& rules_text = "") {
  Program program;
  if (before) before(program);
  for (int i = 0; i < 5; ++i) {
    step(program);
    program.text.synchronize();
  }
  AnalysisOptions options = believing();
  if (!rules_text.empty()) {
    TempFile file("{\"nimble_rules\":1,\"rules\":[" + rules_text + "]}");
    options.rules.read(file.path());
  }
  return {program.text.analyze(options)};
}

}  // namespace nimble::analyzer::test
