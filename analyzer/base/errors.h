// The errors that the analyzer raises for what it was given.
//
// One type: InputError, for a file that is not what it should be. It names the file, the line if there are lines, and
// the field; main() catches it, prints what(), and exits with kExitInput. Everything else that is thrown is a failure
// of Nimble or of the machine (std::system_error, std::bad_alloc). Exceptions are values: any thread may hold one.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace nimble::analyzer {

// Exit statuses of nimble-analyze. Documented in docs/reference/nimble-analyze.md.
enum ExitStatus : int {
  kExitOk = 0,
  kExitFailure = 1,        // nothing wrong with the input as such: cannot write, out of memory, an incomplete recording
  kExitInput = 2,          // bad input or usage
  kExitNoStep = 3,         // the trace holds no step that repeats
  kExitUnschedulable = 4,  // a step was found, but no schedule can serve it
  kExitConflict = 5,       // done, but evidence contradicts itself: the conservative evidence was used
};

class InputError : public std::runtime_error {
 public:
  // `line` counts from 1; 0 if the file has no lines worth naming. `field` may be empty. `message` may contain text
  // from the file: it is cut to one line of sensible length.
  InputError(const std::string& file, std::uint64_t line, const std::string& field, const std::string& message)
      : std::runtime_error(file + ":" + (line != 0 ? std::to_string(line) + ":" : "") + " " +
                           (field.empty() ? "" : field + ": ") + one_line(message)),
        file_(file),
        line_(line),
        field_(field) {}

  const std::string& file() const { return file_; }
  std::uint64_t line() const { return line_; }
  const std::string& field() const { return field_; }

 private:
  static std::string one_line(std::string text) {
    if (text.size() > 300) text = text.substr(0, 297) + "...";
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }

  std::string file_;
  std::uint64_t line_;
  std::string field_;
};

}  // namespace nimble::analyzer
