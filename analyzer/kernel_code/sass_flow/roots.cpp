#include "analyzer/kernel_code/sass_flow/roots.h"

#include <algorithm>

namespace nimble::code::sass {

Root Contents::variable(std::string_view name) {
  const auto found = std::find(variables_.begin(), variables_.end(), name);
  const auto index = static_cast<Root>(found - variables_.begin());
  if (found == variables_.end()) variables_.push_back(name);
  return first_variable() + index;
}

Content Contents::either(const Content& a, const Content& b) {
  return {sets_.both(a.low, b.low), sets_.both(a.high, b.high), sets_.both(a.from, b.from), a.number || b.number,
          a.zero || b.zero};
}

namespace {

bool is_address(const Content& a) { return a.low != kNoRoots || a.high != kNoRoots; }

}  // namespace

Content Contents::sum(const Content& a, const Content& b) {
  Content all = either(a, b);
  const bool a_is_none = a.zero && !is_address(a), b_is_none = b.zero && !is_address(b);
  all.number = (a.number && (b.number || b_is_none)) || (b.number && a_is_none);
  all.zero = a.zero && b.zero;
  return all;
}

Content Contents::weak(const Content& a) {
  return {kNoRoots, kNoRoots, sets_.both(a.from, sets_.both(a.low, a.high)), true};
}

}  // namespace nimble::code::sass
