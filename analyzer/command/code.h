// The command nimble-analyze code: prints what the kernels in a file touch.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as the analyzer does, and std::system_error for files that cannot be written.
int code_command(int argc, char** argv);

}  // namespace nimble::analyzer
