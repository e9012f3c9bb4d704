// Reads a schedule's functions: their parameters, and what their code proves.
#include <bit>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "replayer/schedule/schedule_parts.h"

namespace nimble {

namespace {

// 64 bits in hexadecimal.
std::uint64_t code(const Field& field) {
  const std::string text = field.text();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() != 16 || value == 0)
    field.fail("is not a digest of 16 hexadecimal digits");
  return value;
}

// A condition on parameters that end at `end`.
ParamCondition condition(const Field& field, std::uint32_t end) {
  if (field.size() != 4) field.fail("is not [byte, size, relation, value]");
  ParamCondition result;
  result.at = field[0].number32(end);
  result.bytes = field[1].number32(8);
  if (!std::has_single_bit(result.bytes) || end - result.at < result.bytes)
    field.fail("is not of 1, 2, 4 or 8 bytes of the parameters");
  const std::string relation = field[2].text();
  result.equal = relation == "==";
  if (!result.equal && relation != "!=") field[2].fail("is not \"==\" or \"!=\"");
  result.value = field[3].number(~std::uint64_t{0} >> (64 - 8 * result.bytes));
  return result;
}

// Reads an access mode, into anything with `reads` and `writes`.
template <typename Access>
void read_mode(const Field& field, Access& access) {
  const std::string mode = field.text();
  access.reads = mode == "r" || mode == "rw";
  access.writes = mode == "w" || mode == "rw";
  if (!access.reads && !access.writes) field.fail("is not \"r\", \"w\" or \"rw\"");
}

// An access to memory through words in parameters that end at `end`.
ProvenAccess read_access(const Field& field, std::uint32_t end) {
  if (field.size() != 2 && field.size() != 3) field.fail("is not [words, mode] or [words, mode, conditions]");
  ProvenAccess access;
  const Field words = field[0];
  for (std::size_t word = 0; word < words.size(); ++word) {
    access.at.push_back(words[word].index(end));
    if (access.at.back() % 8 != 0) words[word].fail("is not the offset of a word");
  }
  if (access.at.empty()) words.fail("is empty");
  read_mode(field[1], access);
  for (std::size_t each = 0; field.size() == 3 && each < field[2].size(); ++each)
    access.when.push_back(condition(field[2][each], end));
  return access;
}

std::vector<ProvenAccess> read_proven(const Field& field, std::uint32_t end) {
  std::vector<ProvenAccess> accesses;
  for (std::size_t i = 0; i < field.size(); ++i) accesses.push_back(read_access(field[i], end));
  return accesses;
}

}  // namespace

std::uint32_t param_bytes(const ScheduleFunction& function) {
  return function.params.empty() ? 0 : function.params.back().offset + function.params.back().size;
}

ScheduleFunction read_function(const Field& field) {
  ScheduleFunction result;
  result.name = field.at("name").text();
  result.self_contained = field.at("self_contained").boolean();
  const Field params = field.at("params");
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].size() != 2) params[i].fail("is not [offset, size]");
    const ParamLayout layout{params[i][0].number32(kMostParamBytes), params[i][1].number32(kMostParamBytes)};
    if (layout.offset < end) params[i].fail("overlaps the parameter before it");
    end = layout.offset + layout.size;
    if (end > kMostParamBytes) params[i].fail("ends beyond 32 KiB");
    result.params.push_back(layout);
  }
  if (field.has("code")) result.code = code(field.at("code"));
  if (field.has("doubts")) result.doubts = code(field.at("doubts"));
  if (field.has("proven")) result.proven = read_proven(field.at("proven"), end);
  return result;
}

void read_code(const Field& field, const Schedule& schedule, ScheduleFunction& result) {
  if (field.has("stored")) {
    const Field stored = field.at("stored");
    for (std::size_t i = 0; i < stored.size(); ++i) result.stored.push_back(stored[i].number32(kMostParamBytes));
  }
  if (!field.has("globals")) return;
  if (!result.proven) field.at("globals").fail("is there without \"proven\"");
  const Field globals = field.at("globals");
  for (std::size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].size() != 3) globals[i].fail("is not [name, object, mode]");
    ScheduleGlobal global;
    global.name = globals[i][0].text();
    global.object = globals[i][1].index(schedule.objects.size());
    if (schedule.objects[global.object].step_local) globals[i][1].fail("is local to the step");
    read_mode(globals[i][2], global);
    result.globals.push_back(std::move(global));
  }
}

}  // namespace nimble
