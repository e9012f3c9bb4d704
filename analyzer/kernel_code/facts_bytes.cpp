#include "analyzer/kernel_code/facts_bytes.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace nimble::code {
namespace {

// Both directions are one list of members, visit() below.
class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void number(const T& value, std::uint64_t) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    const std::uint64_t size = value.size();
    number(size, 0);
    out_ += value;
  }
  template <class List, class Each>
  void list(List& values, Each each) {
    const std::uint64_t size = values.size();
    number(size, 0);
    for (auto& value : values) each(value);
  }
  template <class T, class Each>
  void maybe(std::optional<T>& value, Each each) {
    const bool is_there = value.has_value();
    number(is_there, 0);
    if (is_there) each(*value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  // `most`: the largest value that it may have.
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void number(T& value, std::uint64_t most) {
    using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    Stored stored{};
    if (rest_.size() < sizeof stored) return fail();
    std::memcpy(&stored, rest_.data(), sizeof stored);
    rest_.remove_prefix(sizeof stored);
    if (static_cast<std::uint64_t>(stored) > most) return fail();
    value = static_cast<T>(stored);
  }
  void text(std::string& value) {
    std::uint64_t size = 0;
    number(size, rest_.size());
    if (size > rest_.size()) return fail();
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  // Each takes a byte at least, so that a count never makes more than there are bytes.
  template <class List, class Each>
  void list(List& values, Each each) {
    std::uint64_t size = 0;
    number(size, rest_.size());
    for (; size > 0 && good_; --size) each(values.emplace_back());
  }
  template <class T, class Each>
  void maybe(std::optional<T>& value, Each each) {
    bool is_there = false;
    number(is_there, 1);
    if (is_there) each(value.emplace());
  }
  bool is_done() const { return good_ && rest_.empty(); }

 private:
  void fail() {
    good_ = false;
    rest_ = {};
  }

  Bytes rest_;
  bool good_ = true;
};

constexpr std::uint64_t kAny = ~std::uint64_t{0};

template <class Visitor>
void visit(Visitor& v, AddressExtents& extents) {
  v.list(extents.expressions, [&](Expression& each) {
    v.number(each.op, static_cast<std::uint64_t>(ExpressionOp::where));
    v.number(each.bits, 64);
    v.number(each.a, kAny);
    v.number(each.b, kAny);
    v.number(each.value, kAny);
  });
  const auto words = [&](std::vector<std::uint32_t>& list) {
    v.list(list, [&](std::uint32_t& each) { v.number(each, kAny); });
  };
  words(extents.counters);
  v.list(extents.groups, [&](AddressGroup& group) {
    words(group.at);
    v.number(group.reads, 1);
    v.number(group.writes, 1);
    v.list(group.uses, [&](AddressUse& use) {
      v.number(use.address, kAny);
      v.number(use.bytes, kAny);
    });
    v.number(group.complete, 1);
    words(group.numbers);
  });
  v.number(extents.of_accesses, 1);
  v.list(extents.doubts, [&](AddressDoubt& doubt) {
    v.number(doubt.happens, kAny);
    v.text(doubt.why);
    v.number(doubt.follows_memory, 1);
  });
}

template <class Visitor>
void visit(Visitor& v, KernelFacts& facts) {
  v.number(facts.self_contained, 1);
  v.number(facts.constants, 1);
  v.text(facts.why);
  v.maybe(facts.accesses, [&](std::vector<PtxAccess>& accesses) {
    v.list(accesses, [&](PtxAccess& access) {
      v.list(access.at, [&](std::uint32_t& each) { v.number(each, kAny); });
      v.number(access.reads, 1);
      v.number(access.writes, 1);
      v.list(access.when, [&](PtxCondition& each) {
        v.number(each.at, kAny);
        v.number(each.bytes, 8);
        v.number(each.equal, 1);
        v.number(each.value, kAny);
      });
    });
  });
  v.text(facts.why_not_proven);
  v.number(facts.follows_memory, 1);
  v.number(facts.origin, static_cast<std::uint64_t>(Origin::other));
  v.list(facts.globals, [&](PtxGlobal& global) {
    v.text(global.name);
    v.number(global.reads, 1);
    v.number(global.writes, 1);
  });
  v.list(facts.stored, [&](std::uint32_t& each) { v.number(each, kAny); });
  visit(v, facts.extents);
  v.list(facts.params, [&](std::pair<std::uint32_t, std::uint32_t>& each) {
    v.number(each.first, kAny);
    v.number(each.second, kAny);
  });
  v.number(facts.image_digest, kAny);
}

// Whatever refers to an expression refers to one that is there.
bool refers_well(const AddressExtents& extents) {
  const auto is_there = [&](std::uint32_t at) { return at < extents.expressions.size(); };
  return std::ranges::all_of(extents.expressions,
                             [&](const Expression& each) {
                               return (operands_of(each.op) < 1 || is_there(each.a)) &&
                                      (operands_of(each.op) < 2 || is_there(each.b));
                             }) &&
         std::ranges::all_of(extents.counters, is_there) &&
         std::ranges::all_of(extents.groups,
                             [&](const AddressGroup& group) {
                               return std::ranges::all_of(group.uses,
                                                          [&](const AddressUse& use) { return is_there(use.address); });
                             }) &&
         std::ranges::all_of(extents.doubts, [&](const AddressDoubt& doubt) { return is_there(doubt.happens); });
}

}  // namespace

std::string bytes_of(const KernelFacts& facts) {
  Writer writer;
  KernelFacts copy = facts;  // the list of members is one for both directions
  visit(writer, copy);
  return writer.take();
}

std::optional<KernelFacts> facts_of(Bytes bytes) {
  Reader reader(bytes);
  KernelFacts facts;
  visit(reader, facts);
  if (!reader.is_done() || !refers_well(facts.extents)) return std::nullopt;
  return facts;
}

}  // namespace nimble::code
