// What stands for a workspace of cuBLAS's in captures whose memory is the capture pool's (capture_pool.h): a slot of
// its own for each product of matrices.
//
// A program gives cuBLAS one piece of memory to work in for each stream (cublasSetWorkspace), or with each product
// (cublasLtMatmul). What is there is of no use to anybody once the product is done. But products that all work in the
// same memory can only follow each other, whatever they compute; with slots they are ordered as any nodes are, and
// their slots share memory where the order allows it. Kernels, and the size of what they work in, stay what they were.
//
// A slot is taken when the workspace is given, and released when the same one is given again in that capture, or the
// capture ends. Bytes as the program gave them. One lock; any thread. Knows of slots only: shim/graphs/graph_sink.h
// takes and releases them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace nimble::shim {

// For all of a capture: one that is learned from has the slots of all its products at once. Products beyond it work
// where the program has them work.
inline constexpr std::uint64_t kMostForWorkspaces = std::uint64_t{4} << 30;

class Workspaces {
 public:
  // A slot that was given to whoever calls next with a handle of cuBLAS's, and to nobody by name yet: it is now.
  // Nothing where there is none for this workspace of the program's, or it is smaller.
  std::optional<std::uint64_t> claim(std::uint64_t capture, std::uint64_t workspace, std::uint64_t bytes);
  // The slot that stands for it ends; nothing where there is none.
  std::optional<std::uint64_t> end_one(std::uint64_t capture, std::uint64_t workspace);
  // Whether the capture may have so many bytes more. Once it may not, none at all any more, so that its next one, which
  // has the same products, gets the same slots.
  bool may_have(std::uint64_t capture, std::uint64_t bytes);
  void full(std::uint64_t capture);
  // `claimed`: for one product, and no other.
  void began(std::uint64_t capture, std::uint64_t workspace, std::uint64_t slot, std::uint64_t bytes, bool claimed);
  // The capture ends: its slots, for who releases them.
  std::vector<std::uint64_t> end(std::uint64_t capture);

 private:
  struct Slot {
    std::uint64_t address = 0, bytes = 0;
    bool claimed = false;
  };
  struct Capture {
    std::map<std::uint64_t, Slot> slots;  // by what they stand for
    std::uint64_t bytes = 0;              // that it has had
  };

  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Capture> captures_;
};

}  // namespace nimble::shim
