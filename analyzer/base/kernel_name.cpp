#include "analyzer/base/kernel_name.h"

#include "analyzer/base/demangle.h"

namespace nimble::analyzer {

std::string kernel_name(const std::string& name) {
  std::string readable = demangle(name);
  std::size_t end = readable.size();
  int depth = 0;
  // The parameter list is the last group in parentheses, as parameter_types() reads it.
  if (!readable.empty() && readable.back() == ')')
    for (std::size_t i = readable.size(); i-- > 0;) {
      if (readable[i] == ')') ++depth;
      if (readable[i] == '(' && --depth == 0) {
        end = i;
        break;
      }
    }
  readable.resize(end == 0 ? readable.size() : end);
  // Templates are spelled with their return type.
  if (readable.rfind("void ", 0) == 0) readable.erase(0, 5);
  return readable;
}

}  // namespace nimble::analyzer
