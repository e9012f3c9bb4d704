// Stage "input": a trace that has been read, and the objects in it. All kinds of step of a program share one.
//
// Owned jointly; immutable, so any thread may read it.
#pragma once

#include <memory>

#include "analyzer/input/trace_reader.h"
#include "analyzer/memory/objects.h"

namespace nimble::analyzer {

struct Recording {
  std::shared_ptr<const TraceFile> file;
  std::shared_ptr<const ObjectTable> table;

  const Trace& trace() const { return file->trace; }
};

}  // namespace nimble::analyzer
