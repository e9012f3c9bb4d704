// What the program throws when it cannot go on: one line for the user. main prints it and exits with status 1.
#pragma once

#include <stdexcept>
#include <string>

namespace digits {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace digits
