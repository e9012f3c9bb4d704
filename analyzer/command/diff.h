// nimble-analyze diff: what is different between the steps of two traces.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as arguments.h says, and InputError for what cannot be read. One thread.
int diff_command(int argc, char** argv);

}  // namespace nimble::analyzer
