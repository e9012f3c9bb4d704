#include "analyzer/base/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace nimble::analyzer {

std::string demangle(const std::string& name) {
  constexpr std::size_t kMaxName = 16 * 1024;
  if (name.size() > kMaxName || name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                  std::free);
  return status == 0 && readable ? std::string(readable.get()) : name;
}

}  // namespace nimble::analyzer
