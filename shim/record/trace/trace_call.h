// The arguments of a call, as its event in a trace has them. analyzer/input/trace_reader_calls.cpp reads them.
//
// No state; used by the writer's thread.
#pragma once

#include <string>

#include "shim/record/trace/record_queue.h"
#include "shim/record/trace/trace_definitions.h"

namespace nimble::shim {

// Appends them, without braces. What the call names was written down before; but an image may be now.
void append_arguments(std::string& out, const Record& record, TraceDefinitions& definitions);

}  // namespace nimble::shim
