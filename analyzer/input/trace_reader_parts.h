// What the events of a trace become in a Trace, by kind of event. Internal to analyzer/input/trace_reader*.cpp.
//
// Events come in the order of the file, so that what one refers to stands in the Trace already. These functions keep
// nothing but what they put there; two threads may fill two traces. Errors: InputError, naming file, line and field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/base/json_fields.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// Takes over a definition, the metadata event `name`. Names that are unknown are passed over.
void read_definition(const std::string& name, const Fields& args, Trace& trace);

// Appends a call: `top` are the members of its event, `args` its arguments.
void read_call(const Fields& top, const Fields& args, Trace& trace);

// A bar of the stream tracks that tells when the GPU ran an op.
struct DeviceBar {
  std::uint64_t seq, line;
  double begin_us, duration_us;
};

DeviceBar read_device_bar(const Fields& top, const Fields& args, std::uint64_t line);

// Gives the ops their times. More than one bar for an op are parts of it. `calls` are in the order of `seq`; `file` is
// named in errors.
void place_device_bars(const std::vector<DeviceBar>& bars, const std::string& file, std::vector<TraceCall>& calls);

}  // namespace nimble::analyzer
