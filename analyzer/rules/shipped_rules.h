// The rules that come with the tool: what frameworks' kernels do with the structures that they take by value. They are
// the JSON files in this folder, each with the version of the framework that it describes, and are built into the tool.
#pragma once

#include "analyzer/rules/rules.h"

namespace nimble::analyzer {

// Appends all of them. A user's rules come first: the first that matches applies.
void add_shipped_rules(Rules& rules);

// Their text, file after file, for users to read.
std::string shipped_rules_text();

}  // namespace nimble::analyzer
