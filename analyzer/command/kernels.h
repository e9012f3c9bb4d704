// The command nimble-analyze kernels: prints what the kernels of a trace touch, and how that is known.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as the analyzer does, and std::system_error for files that cannot be written.
int kernels_command(int argc, char** argv);

}  // namespace nimble::analyzer
