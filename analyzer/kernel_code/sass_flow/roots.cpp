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

bool Contents::is_address(const Content& a) {
  const RootSet nothing = sets_.of(special(kRootOfNothing));
  return (a.low != kNoRoots && a.low != nothing) || (a.high != kNoRoots && a.high != nothing);
}

Content Contents::sum(const Content& a, const Content& b) {
  Content all = either(a, b);
  // What nothing wrote makes no address of a number.
  const auto is_none = [&](const Content& each) {
    return !is_address(each) && (each.zero || each.low != kNoRoots || each.high != kNoRoots);
  };
  const bool a_is_none = is_none(a), b_is_none = is_none(b);
  all.number = (a.number && (b.number || b_is_none)) || (b.number && a_is_none);
  all.zero = a.zero && b.zero;
  return all;
}

Content Contents::weak(const Content& a) {
  return {kNoRoots, kNoRoots, sets_.both(a.from, sets_.both(a.low, a.high)), true};
}

}  // namespace nimble::code::sass
