// nimble-analyze: reads a trace, reports on its step, and writes a schedule. See docs/reference/nimble-analyze.md.

#include <exception>
#include <new>

#include "analyzer/base/errors.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/subcommands.h"

int main(int argc, char** argv) {
  using namespace nimble::analyzer;
  try {
    return run_command(argc, argv);
  } catch (const InputError& error) {
    return complain(error.what(), kExitInput);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}
