// nimble-analyze report: the report as an HTML file.
#pragma once

namespace nimble::analyzer {

// Returns the exit status. Throws as arguments.h says, and InputError for what cannot be read. One thread.
int report_command(int argc, char** argv);

}  // namespace nimble::analyzer
