#include "shim/check/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/process/memory_reserve.h"
#include "replayer/driver/result_name.h"

namespace nimble::shim {

namespace {

using Json = nlohmann::ordered_json;

std::string list(const std::map<std::string, std::uint64_t, std::less<>>& counts) {
  std::string text;
  for (const auto& [what, count] : counts) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", what, count);
  return text;
}

double each(std::uint64_t sum, std::uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

// The words of the parameters that lead into one of these objects.
std::vector<std::uint32_t> words_to(const std::vector<std::uint8_t>& params,
                                    const std::vector<MappedMemory::Object>& objects) {
  std::vector<std::uint32_t> words;
  for (std::uint32_t at = 0; at + 8 <= params.size(); at += 4) {
    std::uint64_t word = 0;
    std::memcpy(&word, params.data() + at, sizeof word);
    if (std::ranges::any_of(objects, [&](const auto& one) { return word - one.address < one.size; }))
      words.push_back(at);
  }
  return words;
}

Json objects_of(const std::vector<MappedMemory::Object>& objects, const std::vector<std::uint8_t>& params) {
  Json all = Json::array();
  for (const MappedMemory::Object& object : objects)
    all.push_back({{"address", object.address}, {"size", object.size}, {"words", words_to(params, {object})}});
  return all;
}

Json json_of(const AccessFault& fault) {
  Json json;
  json["kernel"] = fault.function->name;
  json["result"] = static_cast<int>(fault.result);
  json["grid"] = fault.grid;
  json["block"] = fault.block;
  json["shared_bytes"] = fault.shared_bytes;
  std::string bytes;
  for (const std::uint8_t byte : fault.params) bytes += fmt::format("{:02x}", byte);
  json["params"] = bytes;
  json["evidence"] = name(fault.said.evidence);
  json["said"] = Json::array();
  for (const LaunchAccesses::Memory& memory : fault.said.memory)
    json["said"].push_back({{"address", memory.address},
                            {"size", memory.size},
                            {"writes", memory.writes},
                            {"words", words_to(fault.params, {{memory.address, memory.size}})}});
  json["read_only"] = objects_of(fault.restricted.read_only, fault.params);
  json["closed"] = objects_of(fault.restricted.closed, fault.params);
  return json;
}

}  // namespace

void CheckReport::launched(const FunctionInfo& function) {
  const std::lock_guard lock(mutex_);
  ++launches_;
  ++kernels_[&function].launches;
}

void CheckReport::unknown(const FunctionInfo& function, const std::string& why) {
  const std::lock_guard lock(mutex_);
  ++unknown_;
  Kernel& kernel = kernels_[&function];
  ++kernel.unknown;
  kernel.why_unknown = why;
}

void CheckReport::skipped(std::string_view why) {
  const std::lock_guard lock(mutex_);
  ++skipped_[std::string(why)];
}

void CheckReport::passed(const FunctionInfo& function, const MappedMemory::Restriction& restricted) {
  const std::lock_guard lock(mutex_);
  ++checked_;
  ++kernels_[&function].checked;
  closed_ += restricted.closed.size();
  read_only_ += restricted.read_only.size();
}

void CheckReport::failed(AccessFault fault) {
  const std::lock_guard lock(mutex_);
  ++checked_;
  ++kernels_[fault.function].checked;
  closed_ += fault.restricted.closed.size();
  read_only_ += fault.restricted.read_only.size();
  faults_.push_back(std::move(fault));
}

void CheckReport::left_open(std::string_view what) {
  const std::lock_guard lock(mutex_);
  ++left_open_[std::string(what)];
}

void CheckReport::stopped(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stopped_ = why;
}

bool CheckReport::any_launch() const {
  const std::lock_guard lock(mutex_);
  return launches_ != 0;
}

bool CheckReport::any_fault() const {
  const std::lock_guard lock(mutex_);
  return !faults_.empty();
}

std::string CheckReport::line() const {
  const std::lock_guard lock(mutex_);
  const auto checked = std::ranges::count_if(kernels_, [](const auto& one) { return one.second.checked != 0; });
  std::string text = fmt::format(
      "{}: {} of {} launches checked, of {} of {} kernels; on average {:.1f} objects were closed and {:.1f} "
      "read-only",
      faults_.empty() ? "no fault" : "a fault", checked_, launches_, checked, kernels_.size(), each(closed_, checked_),
      each(read_only_, checked_));
  if (unknown_ != 0) text += fmt::format("; nothing is known about {} more", unknown_);
  if (!skipped_.empty()) text += "; not checked: " + list(skipped_);
  if (!left_open_.empty()) text += "; memory that stays open: " + list(left_open_);
  if (!stopped_.empty()) text += "; stopped: " + stopped_;
  return text;
}

std::string CheckReport::line(const AccessFault& fault) {
  const auto bytes = [](const std::vector<std::uint32_t>& words) {
    std::string text;
    for (const std::uint32_t at : words) text += fmt::format("{}{}", text.empty() ? "" : ", ", at);
    return text.empty() ? std::string("none") : text;
  };
  std::vector<MappedMemory::Object> written;
  for (const LaunchAccesses::Memory& memory : fault.said.memory)
    if (memory.writes) written.push_back({memory.address, memory.size});
  return fmt::format(
      "a launch of {} with {} x {} x {} blocks of {} x {} x {} threads touched memory that it should not ({}). By "
      "evidence \"{}\", through the pointers at these bytes of its parameters it writes: {}; only reads: {}; neither: "
      "{}. {} objects were closed to it, {} read-only",
      fault.function->name, fault.grid[0], fault.grid[1], fault.grid[2], fault.block[0], fault.block[1], fault.block[2],
      result_name(fault.result), name(fault.said.evidence), bytes(words_to(fault.params, written)),
      bytes(words_to(fault.params, fault.restricted.read_only)), bytes(words_to(fault.params, fault.restricted.closed)),
      fault.restricted.closed.size(), fault.restricted.read_only.size());
}

std::string CheckReport::write(const std::string& path) const {
  const MemoryReserve reserve;  // building a JSON value does not survive running out of memory halfway
  Json json;
  {
    const std::lock_guard lock(mutex_);
    json["nimble_stats"] = 1;  // identifies the file as ours
    json["launches"] = launches_;
    json["launches_checked"] = checked_;
    json["launches_unknown"] = unknown_;
    json["objects_closed"] = each(closed_, checked_);
    json["objects_read_only"] = each(read_only_, checked_);
    json["skipped"] = skipped_;
    json["left_open"] = left_open_;
    json["stopped"] = stopped_;
    json["faults"] = Json::array();
    for (const AccessFault& fault : faults_) json["faults"].push_back(json_of(fault));
    std::vector<const FunctionInfo*> sorted;
    for (const auto& [function, kernel] : kernels_) sorted.push_back(function);
    std::ranges::sort(sorted, [](const FunctionInfo* a, const FunctionInfo* b) {
      return std::pair(std::string_view(a->name), a->code) < std::pair(std::string_view(b->name), b->code);
    });
    json["kernels"] = Json::array();
    for (const FunctionInfo* const function : sorted) {
      const Kernel& kernel = kernels_.at(function);
      Json one{{"name", function->name}, {"launches", kernel.launches}, {"checked", kernel.checked}};
      if (kernel.unknown != 0) one.update({{"unknown", kernel.unknown}, {"why_unknown", kernel.why_unknown}});
      json["kernels"].push_back(std::move(one));
    }
  }
  const WrittenFile written = write_own_file(path, json.dump(2) + "\n", FileKind::counters);
  if (written.error != 0)
    return fmt::format("{}: cannot write the report there: {}. Set NIMBLE_STATS to another file.", path,
                       std::strerror(written.error));
  if (written.why_other.empty()) return {};
  return left_alone(path, written.why_other) + ": the report is in " + written.path;
}

}  // namespace nimble::shim
