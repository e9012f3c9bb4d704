#include "analyzer/command/find_recording.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/base/text.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/progress.h"
#include "analyzer/pipeline.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/part_file.h"

namespace nimble::analyzer {
namespace {

// Names of traces that could be read if none has this name.
std::vector<std::string> other_traces(const std::string& path) {
  std::vector<std::string> found;
  for (std::uint32_t which = 1; which < nimble::kMostNames; ++which) {
    const std::string name = nimble::name_in_place(path, which);
    if (!nimble::what_is_at(name)) break;
    found.push_back(name);
  }
  for (const nimble::PartFile& part : nimble::parts_of(path)) found.push_back(part.path);
  return found;
}

// Shows how far it is, and no longer when there is something else to say.
TraceFile read_shown(const std::string& path) {
  const Progress progress("reading " + path);
  return read_trace(path);
}

}  // namespace

TraceFile read_recording(const std::string& path) {
  const bool is_there = nimble::what_is_at(path, /*follow=*/true).has_value();
  const std::vector<std::string> others = other_traces(path);
  if (!is_there && others.size() == 1) {
    const std::vector<nimble::PartFile> parts = nimble::parts_of(path);
    const bool is_part = !parts.empty();
    complain(path + " does not exist; reading " + others.front() +
                 (!is_part                     ? ", which was recorded in its place"
                  : parts.front().is_written() ? ", which is still being recorded"
                                               : ", which an interrupted recording has left"),
             0);
    return read_shown(others.front());
  }
  try {
    TraceFile file = read_shown(path);
    for (const nimble::PartFile& part : nimble::parts_of(path)) {
      const auto one = nimble::what_is_at(part.path), other = nimble::what_is_at(path, /*follow=*/true);
      if (one && other && nimble::changed_ns(*one) > nimble::changed_ns(*other))
        complain("newer than " + path + ": " + part.path +
                     ", of a recording that is still running or was interrupted. To read it: nimble-analyze " +
                     part.path,
                 0);
    }
    return file;
  } catch (const InputError&) {
    for (const std::string& other : others) complain("there is another recording: nimble-analyze " + other, 0);
    throw;
  }
}

Analysis analyze_recording(const std::string& path, const AnalysisOptions& options) {
  TraceFile file = read_recording(path);
  const Progress progress("analyzing " + plural(file.trace.calls.size(), "call"));
  return analyze(std::move(file), options);
}

}  // namespace nimble::analyzer
