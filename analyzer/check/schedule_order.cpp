#include "analyzer/check/schedule_order.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "analyzer/base/json_fields.h"
#include "nimble/internal/process/memory_reserve.h"

namespace nimble::analyzer {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// Keys whose values are kept while the text is parsed; the rest, which is most of the text, is dropped at once.
constexpr std::string_view kKept[] = {"nimble_schedule", "trace_digest", "arena_bytes", "objects", "ops",
                                      "segments",        "memory",       "size",        "edges",   "step_local",
                                      "plan_offset",     "kind",         "submit",      "segment", "trust",
                                      "record",          "object",       "branches",    "ends"};

// Builds a JSON value without what is under other keys. (The parser's own filter takes quadratic time in the length of
// a list.)
class KeptValues : public json::json_sax_t {
 public:
  json root;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return put(nullptr); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (dropped_ > 0) return true;
    drop_next_ = std::find(std::begin(kKept), std::end(kKept), name) == std::end(kKept);
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }

 private:
  json* place(json value) {
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &((*open_.back())[key_] = std::move(value));
  }
  bool put(json value) {
    if (dropped_ == 0 && !drop_next_) place(std::move(value));
    drop_next_ = false;
    return true;
  }
  bool open(json value) {
    if (dropped_ > 0 || drop_next_)
      ++dropped_;
    else
      open_.push_back(place(std::move(value)));
    drop_next_ = false;
    return true;
  }
  bool close() {
    if (dropped_ > 0)
      --dropped_;
    else
      open_.pop_back();
    return true;
  }

  std::vector<json*> open_;
  std::string key_;
  bool drop_next_ = false;
  std::uint32_t dropped_ = 0;  // how deep in a value that is not kept
};

json parse(const std::string& text, const std::string& file) {
  KeptValues values;
  if (!json::sax_parse(text, &values)) throw InputError(file, 0, "", "is not JSON");
  return std::move(values.root);
}

// Calls `read` with the fields of each object in the list `key`.
template <typename Read>
void each(const Fields& top, const char* key, const FilePlace& place, Read read) {
  std::size_t i = 0;
  for (const json& element : top.list(key)) {
    std::string prefix = key;
    prefix.append("[").append(std::to_string(i++)).append("]");
    if (!element.is_object()) throw InputError(place.file, 0, prefix, "must be an object");
    prefix.append(".");
    read(Fields(element, prefix.c_str(), place));
  }
}

// The place of the text `key` in a list of names.
template <std::size_t N>
std::uint8_t one_of(const Fields& fields, const char* key, const std::string_view (&names)[N]) {
  auto found = std::find(std::begin(names), std::end(names), fields.text(key));
  if (found == std::end(names)) fields.fail(key, "is unknown: " + fields.text(key));
  return static_cast<std::uint8_t>(found - std::begin(names));
}

ScheduleOrder::Op read_op(const Fields& fields) {
  ScheduleOrder::Op op;
  op.kind = static_cast<CallKind>(one_of(fields, "kind", kCallKindNames));
  op.submit = static_cast<Submit>(one_of(fields, "submit", kSubmitNames));
  if (!fields.member("segment").is_null())
    op.segment = static_cast<std::uint32_t>(fields.number("segment", kNone - std::uint64_t{1}));
  if (is_held(op.submit) != (op.segment != kNone)) fields.fail("segment", "does not go with submit");
  if (op.submit == Submit::order && op.kind != CallKind::event_wait)
    fields.fail("submit", "is order for an op that is not an event wait");
  if (op.submit == Submit::order && !fields.member("record").is_null())
    op.record = static_cast<std::uint32_t>(fields.number("record", kNone - std::uint64_t{1}));
  const bool memory = op.kind == CallKind::alloc_async || op.kind == CallKind::free_async;
  if (op.submit == Submit::plan && memory)
    op.object = static_cast<std::uint32_t>(fields.number("object", kNone - std::uint64_t{1}));
  bool node = op.kind == CallKind::launch || op.kind == CallKind::copy || op.kind == CallKind::set ||
              op.kind == CallKind::event_record;
  if (op.submit == Submit::graph && !node) fields.fail("submit", "is graph for an op that no graph can hold");
  return op;
}

ScheduleObject read_object(const Fields& fields, std::uint64_t arena_bytes) {
  ScheduleObject object;
  object.memory = static_cast<MemoryKind>(one_of(fields, "memory", kMemoryKindNames));
  object.size = fields.number("size");
  object.step_local = fields.flag("step_local");
  object.plan_offset = fields.number("plan_offset");
  if (object.step_local && (object.plan_offset > arena_bytes || object.size > arena_bytes - object.plan_offset))
    fields.fail("plan_offset", "is outside the arena");
  return object;
}

// The kinds of step, from the branches and the ends of a schedule; if it names none, all ops are of one kind.
void read_kinds(const Fields& top, ScheduleOrder& order) {
  const auto count = static_cast<std::uint32_t>(order.ops.size());
  if (!top.has("ends") && !top.has("branches")) {
    order.kinds.emplace_back(count);
    for (std::uint32_t op = 0; op < count; ++op) order.kinds.front()[op] = op;
    return;
  }
  std::vector<std::uint32_t> before(count);  // by op: the one before it, kNone for those that begin a step
  for (std::uint32_t op = 0; op < count; ++op) before[op] = op - 1;
  std::uint64_t last = 0;
  for (const json& branch : top.list("branches")) {
    if (!branch.is_array() || branch.size() != 2) top.fail("branches", "must be a list of [op, op or null]");
    const std::uint64_t first = top.number_of(branch[0], "branches", kMax);
    const std::uint64_t after = branch[1].is_null() ? kNone : top.number_of(branch[1], "branches", kMax);
    if (first >= count || first < last || (after != kNone && after >= first))
      top.fail("branches", "must go from an earlier to a later op of the schedule, and ascend");
    before[first] = static_cast<std::uint32_t>(after);
    last = first;
  }
  if (top.list("ends").size() > kMaxKinds) top.fail("ends", "has more than " + std::to_string(kMaxKinds) + " ops");
  for (const json& each : top.list("ends")) {
    const std::uint64_t end = top.number_of(each, "ends", kMax);
    if (end >= count) top.fail("ends", "must be ops of the schedule");
    std::vector<std::uint32_t>& kind = order.kinds.emplace_back();
    for (auto op = static_cast<std::uint32_t>(end); op != kNone; op = before[op]) kind.push_back(op);
    std::reverse(kind.begin(), kind.end());
  }
}

}  // namespace

ScheduleOrder order_of_kind(const ScheduleOrder& order, std::size_t kind) {
  if (order.kinds.size() == 1 && order.kinds.front().size() == order.ops.size()) return order;
  ScheduleOrder result;
  result.trace_digest = order.trace_digest;
  result.trust = order.trust;
  result.arena_bytes = order.arena_bytes;
  result.objects = order.objects;
  std::vector<std::uint32_t> op_of(order.ops.size(), kNone), segment_of(order.edges.size(), kNone);
  for (const std::uint32_t op : order.kinds[kind]) {
    op_of[op] = static_cast<std::uint32_t>(result.ops.size());
    ScheduleOrder::Op& mine = result.ops.emplace_back(order.ops[op]);
    if (mine.record != kNone) mine.record = mine.record < op ? op_of[mine.record] : kNone;
    if (mine.segment == kNone) continue;
    std::uint32_t& segment = segment_of[mine.segment];
    if (segment == kNone) {
      segment = static_cast<std::uint32_t>(result.edges.size());
      result.edges.push_back(order.edges[mine.segment]);
    }
    mine.segment = segment;
  }
  // An edge to an op that the kind does not have orders nothing in it.
  for (auto& edges : result.edges) {
    for (auto& [from, to] : edges) from = op_of[from], to = op_of[to];
    std::erase_if(edges, [](const auto& edge) { return edge[0] == kNone || edge[1] == kNone; });
  }
  result.kinds.emplace_back();
  for (std::uint32_t op = 0; op < result.ops.size(); ++op) result.kinds.front().push_back(op);
  return result;
}

ScheduleOrder read_schedule_order(const std::string& text, const std::string& file) {
  json parsed = parse(text, file);
  const JsonEnds ends(parsed);
  if (!parsed.is_object()) throw InputError(file, 0, "", "is not a schedule");
  FilePlace place{file, 0};
  Fields top(parsed, "", place);
  if (std::uint64_t version = top.number("nimble_schedule"); version != kScheduleVersion)
    top.fail("nimble_schedule", "is " + std::to_string(version) + "; this nimble-analyze reads version " +
                                    std::to_string(kScheduleVersion));
  ScheduleOrder order;
  order.trace_digest = top.text("trace_digest");
  std::string trust = top.text_or("trust", std::string(name(kDefaultTrust)).c_str());
  if (auto level = trust_of(trust))
    order.trust = *level;
  else
    top.fail("trust", "is unknown: " + trust);
  order.arena_bytes = top.number("arena_bytes");
  each(top, "objects", place,
       [&](const Fields& fields) { order.objects.push_back(read_object(fields, order.arena_bytes)); });
  std::size_t segments = top.list("segments").size();
  each(top, "ops", place, [&](const Fields& fields) {
    order.ops.push_back(read_op(fields));
    if (order.ops.back().segment != kNone && order.ops.back().segment >= segments)
      fields.fail("segment", "is not a segment of the schedule");
  });
  each(top, "segments", place, [&](const Fields& fields) {
    auto id = static_cast<std::uint32_t>(order.edges.size());
    auto& edges = order.edges.emplace_back();
    for (const json& pair : fields.list("edges")) {
      if (!pair.is_array() || pair.size() != 2) fields.fail("edges", "must be a list of [op, op]");
      std::uint64_t from = fields.number_of(pair[0], "edges", kMax), to = fields.number_of(pair[1], "edges", kMax);
      auto is_node = [&](std::uint64_t op) {
        return op < order.ops.size() && order.ops[op].segment == id && order.ops[op].submit == Submit::graph;
      };
      if (from >= to || !is_node(from) || !is_node(to))
        fields.fail("edges", "must go from an earlier to a later op of the segment");
      edges.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)});
    }
  });
  read_kinds(top, order);
  for (std::size_t op = 0; op < order.ops.size(); ++op)
    if (order.ops[op].object != kNone && order.ops[op].object >= order.objects.size())
      throw InputError(file, 0, "ops[" + std::to_string(op) + "].object", "is not an object of the schedule");
  return order;
}

}  // namespace nimble::analyzer
