// Running one op: what it does to memory, whether it may, and what it touched. Under the driver's mutex, which is
// released only while a host function of the program runs.
#pragma once

#include "include/nimble/internal/device_model.h"
#include "tests/simcuda/engine/op.h"

namespace simcuda {

void execute(Op& op);

// Whether a wait for a value in memory is over.
bool value_arrived(const ValueStep& value);

nimble::CopyDirection copy_direction(const Work& work);

// Does a copy at once, rows and slices and all.
void copy_box(const Copy& copy, const std::byte* source);

}  // namespace simcuda
