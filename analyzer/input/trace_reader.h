// Reads a trace file (docs/reference/formats.md) and checks every number and index in it.
//
// The file is read line by line and each line is dropped once it is decoded, so memory is bounded by the calls that it
// holds, and by kMaxLineBytes. The returned TraceFile owns everything. Only a GrowingTrace keeps state between calls;
// two threads may read two files. Host times are microseconds, sizes bytes.
//
// Errors: InputError, naming file, line and field, for anything that is not a trace of version kTraceVersion. A file
// that was cut off is no error: its last half line is left out, and Trace::complete is false.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

inline constexpr std::uint64_t kMaxLineBytes = 1 << 20;
inline constexpr std::uint32_t kMaxParamBytes = 64 * 1024;

struct TraceFile {
  std::string path;
  std::string digest;       // XXH3-64 of the file's bytes, as 16 hexadecimal digits; empty of a GrowingTrace's
  std::uint64_t lines = 0;  // lines read
  Trace trace;
};

TraceFile read_trace(const std::string& path);

// The same of a text that is handed over piece by piece (as LineReader::Source says); `name` stands for it in errors.
TraceFile read_trace(const std::string& name, std::function<std::size_t(char* buffer, std::size_t size)> source);

// A trace that is read while it is written: no line of it is decoded twice. Not synchronised.
class GrowingTrace {
 public:
  explicit GrowingTrace(std::string name);
  ~GrowingTrace();
  GrowingTrace(const GrowingTrace&) = delete;
  GrowingTrace& operator=(const GrowingTrace&) = delete;

  // What comes next in it: whole lines.
  void read_on(std::string_view lines);
  // What read_trace() would return of all that has come so far.
  TraceFile file() const;

 private:
  class Reading;
  const std::unique_ptr<Reading> reading_;
};

}  // namespace nimble::analyzer
