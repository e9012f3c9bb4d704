// What was found of kernels, as text for people and as JSON. Pure; any thread. No errors.
#pragma once

#include <string>

#include "analyzer/base/json_text.h"
#include "analyzer/code_survey/findings.h"

namespace nimble::analyzer {

std::string kernel_text(const KernelFindings& kernel);

// An object of the list `kernels`; docs/reference/nimble-analyze.md lists its keys.
void kernel_json(JsonText& out, const KernelFindings& kernel, std::uint64_t image_at);

}  // namespace nimble::analyzer
