#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/oracle/check/exact.h"

namespace nimble::oracle {
namespace {

template <class T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& bytes, const std::string& text) {
  put(bytes, text.size());
  bytes += text;
}
void put_ranges(std::string& bytes, const std::vector<Bytes>& ranges) {
  put(bytes, ranges.size());
  for (const Bytes& range : ranges) put(bytes, range);
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = get<std::size_t>();
    return {take(size), size};
  }
  std::vector<Bytes> ranges() {
    std::vector<Bytes> all(get<std::size_t>());
    for (Bytes& range : all) range = get<Bytes>();
    return all;
  }

 private:
  const char* take(std::size_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("the list of accesses is cut off");
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<ExactOp> exact_of_report(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<std::pair<std::uint64_t, ExactOp>> found;
  try {
    const nlohmann::json report = nlohmann::json::parse(file);
    for (const auto& one : report.at("accesses")) {
      ExactOp op;
      op.call = one.at("call");
      op.thread = one.at("thread");
      op.symbol = one.at("symbol");
      op.name = one.at("name");
      op.exact = one.at("exact");
      for (const auto& range : one.at("reads")) op.reads.push_back({range.at(0), range.at(1)});
      for (const auto& range : one.at("writes")) op.writes.push_back({range.at(0), range.at(1)});
      found.emplace_back(one.at("op"), std::move(op));
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path + ": " + error.what() + " (was SIMCUDA_ACCESS set?)");
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ExactOp> ops;
  for (auto& one : found) ops.push_back(std::move(one.second));
  return ops;
}

std::string pack(const std::vector<ExactOp>& ops) {
  std::string bytes;
  for (const ExactOp& op : ops) {
    put(bytes, op.call);
    put(bytes, op.thread);
    put_text(bytes, op.symbol);
    put_text(bytes, op.name);
    put(bytes, op.exact);
    put_ranges(bytes, op.reads);
    put_ranges(bytes, op.writes);
  }
  return bytes;
}

std::vector<ExactOp> unpack(const std::string& bytes) {
  std::vector<ExactOp> ops;
  for (Reader reader(bytes); !reader.done();) {
    ExactOp op;
    op.call = reader.get<std::uint64_t>();
    op.thread = reader.get<std::uint64_t>();
    op.symbol = reader.text();
    op.name = reader.text();
    op.exact = reader.get<bool>();
    op.reads = reader.ranges();
    op.writes = reader.ranges();
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace nimble::oracle
