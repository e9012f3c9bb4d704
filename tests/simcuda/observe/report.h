// What the driver tells at the end, and the log.
#pragma once

#include "tests/simcuda/engine/work.h"

namespace simcuda {

struct Driver;

void log_call(const char* symbol, CUresult result);
// Writes the report that SIMCUDA_REPORT names when the process ends; a forked child writes none.
void report_at_exit(Driver& driver);

const char* result_name(CUresult result);  // null for a number that is none

}  // namespace simcuda
