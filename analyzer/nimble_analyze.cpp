// nimble-analyze: reads a trace, reports on its step, and writes a schedule. See docs/reference/nimble-analyze.md.

#include <exception>
#include <new>
#include <string_view>

#include "analyzer/base/errors.h"
#include "analyzer/command/analyze.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/check.h"
#include "analyzer/command/code.h"
#include "analyzer/command/kernels.h"

int main(int argc, char** argv) {
  using namespace nimble::analyzer;
  try {
    if (argc > 1 && std::string_view(argv[1]) == "check") return check_command(argc - 1, argv + 1);
    if (argc > 1 && std::string_view(argv[1]) == "code") return code_command(argc - 1, argv + 1);
    if (argc > 1 && std::string_view(argv[1]) == "kernels") return kernels_command(argc - 1, argv + 1);
    return analyze_command(argc, argv);
  } catch (const InputError& error) {
    return complain(error.what(), kExitInput);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}
