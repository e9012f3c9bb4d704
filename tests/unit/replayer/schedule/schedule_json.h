// A schedule for tests of its reader, and what the reader says of another.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "replayer/schedule/schedule_reader.h"

namespace nimble {

using Json = nlohmann::json;

// A small schedule with everything in it: an allocation, a copy, two launches, a set, a record, a free, a direct op.
inline Json good() {
  return Json::parse(R"json({
    "nimble_schedule": 6, "policy": "nimble", "trace_digest": "00",
    "streams": [{"kind": "blocking", "forked": true}],
    "functions": [{"name": "k", "params": [[0, 8], [8, 4]], "self_contained": true}],
    "objects": [{"memory": "pinned", "size": 64, "step_local": false, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 64, "step_local": true, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 100, "step_local": true, "plan_offset": 512}],
    "ops": [
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 1, "size": 64},
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 2, "size": 100},
      {"kind": "copy", "submit": "graph", "segment": 0, "lane": 0, "dst": {"object": 1, "offset": 0, "fixed": false},
       "src": {"object": 0, "offset": 16, "fixed": true}, "dst_pitch": 0, "src_pitch": 0, "width": 48, "height": 1},
      {"kind": "launch", "submit": "graph", "segment": 0, "lane": 0, "function": 0, "grid": [1, 1, 1], "block": [32, 1, 1],
       "shared_bytes": 0, "fixed_launch": false, "barrier": false, "priority": 3, "pointers": [{"at": 0, "object": 1, "offset": 0, "fixed": false}], "numbers": [],
       "writes": [1], "believed_reads": [0, 2]},
      {"kind": "set", "submit": "graph", "segment": 0, "lane": 1, "dst": {"object": 2, "offset": 0, "fixed": false},
       "dst_pitch": 20, "width": 16, "height": 5, "element": 4},
      {"kind": "event_record", "submit": "graph", "segment": 0, "lane": 0},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 1},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 2},
      {"kind": "host_function", "submit": "direct", "segment": null, "lane": 0}],
    "segments": [{"first": 2, "last": 5, "lanes": 2, "synchronizations": 1, "edges": [[2, 3], [3, 5], [4, 5]],
                  "order": [2, 3, 4, 5]}],
    "arena_bytes": 1024})json");
}

inline std::string error_of(const Json& json) {
  try {
    parse_schedule(json.dump(), "s.json");
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

}  // namespace nimble
