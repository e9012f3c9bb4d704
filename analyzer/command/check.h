// The command nimble-analyze check: checks a schedule against the trace that it was made from.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as the analyzer does.
int check_command(int argc, char** argv);

}  // namespace nimble::analyzer
