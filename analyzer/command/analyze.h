// The command nimble-analyze: reads a trace, reports on its step, and writes a schedule.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as the analyzer does, and std::system_error for files that cannot be written.
int analyze_command(int argc, char** argv);

}  // namespace nimble::analyzer
