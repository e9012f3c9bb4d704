// The program graph_memory: what it may do, by kind of graph. One file each has the first, the second and the third
// kind: graph_memory_released.cpp, graph_memory_captures.cpp, graph_memory_changes.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "tests/integration/programs/common/graph_program.h"

struct MemoryProgram : GraphProgram {
  // --- Memory of a graph that is released, or not.

  void freed();
  void freed_in_capture();
  void other_graph(bool launches);
  void hands();
  void again();
  void leak(bool fails) const;
  void late();
  void node();

  // --- How captures allocate.

  void branch(CUdeviceptr to, unsigned salt, CUdeviceptr from = 0) const;
  void set(bool planned);
  void contexts();
  void two_contexts();
  void reached();
  void elsewhere() const;
  void refused();
  void spoilt() const;

  // --- What changes around a graph.

  void destroyed(const std::string& what);
  void shown();
  void meanwhile();
  void unloaded();
  void returned();
  void threads();

 private:
  CUgraph capture_branches() const;
  static std::uint64_t taken_of_pool();
  static void say(CUgraphExec exec);
  static void show_some_memory();
};
