// What ops really touched, as the simulated driver saw it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::oracle {

struct Bytes {
  std::uint64_t begin = 0, end = 0;  // addresses
};

// One op that ran. A graph's nodes have the graph's launch as their call.
struct ExactOp {
  std::uint64_t call = 0, thread = 0;
  std::string symbol, name;  // of the call; of the kernel, or of the call
  bool exact = false;        // false: the ranges are not known
  std::vector<Bytes> reads, writes;
};

// Of this process, so far, in the order of submission.
std::vector<ExactOp> exact_of_process();

// Of a report that the simulated driver wrote at the end of another process (SIMCUDA_REPORT, with SIMCUDA_ACCESS=1).
// Throws std::runtime_error.
std::vector<ExactOp> exact_of_report(const std::string& path);

// As bytes, for a pipe.
std::string pack(const std::vector<ExactOp>& ops);
std::vector<ExactOp> unpack(const std::string& bytes);

}  // namespace nimble::oracle
