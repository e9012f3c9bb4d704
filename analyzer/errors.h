// The errors that the analyzer raises for what it was given.
//
// One type: InputError, for a file that is not what it should be. It names the file, the line where there are lines,
// and the field; main() catches it, prints what(), and exits with kExitInput. Everything else that is thrown is a
// failure of ours or of the machine (std::system_error, std::bad_alloc). Exceptions are values: any thread may hold
// one.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace nimble::analyzer {

// Exit statuses of nimble-analyze. Documented in docs/nimble-analyze.md.
enum ExitStatus : int {
  kExitOk = 0,
  kExitFailure = 1,        // nothing wrong with the input as such: cannot write, out of memory, an incomplete recording
  kExitInput = 2,          // bad input or usage
  kExitNoStep = 3,         // the trace holds no step that repeats
  kExitUnschedulable = 4,  // a step was found, but no schedule can serve it
};

class InputError : public std::runtime_error {
 public:
  // `line` counts from 1; 0 where the file has no lines worth naming. `field` may be empty.
  InputError(const std::string& file, std::uint64_t line, const std::string& field, const std::string& message)
      : std::runtime_error(file + ":" + (line != 0 ? std::to_string(line) + ":" : "") + " " +
                           (field.empty() ? "" : field + ": ") + message),
        file_(file),
        line_(line),
        field_(field) {}

  const std::string& file() const { return file_; }
  std::uint64_t line() const { return line_; }
  const std::string& field() const { return field_; }

 private:
  std::string file_;
  std::uint64_t line_;
  std::string field_;
};

}  // namespace nimble::analyzer
