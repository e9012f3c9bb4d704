// nimble-analyze why-slow: for what the GPU is idle or narrow in a step, and what can be done about it.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as arguments.h says, and InputError for what cannot be read. One thread.
int why_slow_command(int argc, char** argv);

}  // namespace nimble::analyzer
