// A call's arguments, as written to its event in a trace. analyzer/input/trace_reader_calls.cpp reads them into the
// records of nimble/internal/trace.h.
//
// No state; used by the writer's thread.
#pragma once

#include <string>

#include "shim/record/trace/record_queue.h"
#include "shim/record/trace/trace_definitions.h"

namespace nimble::shim {

// Appends them, without braces. Definitions of what the call names were written before; an image's may be written now.
void append_arguments(std::string& out, const Record& record, TraceDefinitions& definitions);

}  // namespace nimble::shim
