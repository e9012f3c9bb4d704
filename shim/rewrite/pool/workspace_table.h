// Replaces cuBLAS's workspace in captures whose memory is the capture pool's (capture_pool.h): by a separate slot for
// each matrix product.
//
// A program gives cuBLAS one workspace for each stream (cublasSetWorkspace), or with each product (cublasLtMatmul). Its
// content is dead once the product is done. But products that share a workspace must run one after another, whatever
// they compute; with slots they are ordered like any nodes, and their slots share memory where the order allows it.
// Kernels, and the size of their workspaces, stay the same.
//
// A slot is taken when the workspace is set, and released when the same one is set again in the same way in that
// capture after more work, or the capture ends. Sizes as the program gave them. One lock; any thread. Only keeps track
// of slots: shim/rewrite/allocate/workspace_slots.h takes and releases them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace nimble::shim {

class WorkspaceTable {
 public:
  // A slot that was set for a handle of cuBLAS and is not in use yet: the capture has no new nodes since. A caller that
  // needs it for one product claims it. Nothing if there is none for this workspace of the program, or it is smaller.
  std::optional<std::uint64_t> given(std::uint64_t capture, std::uint64_t workspace, std::uint64_t bytes,
                                     std::size_t nodes, bool claims);
  // Ends its slot; nothing if there is none. `for_one`: as in began(). A handle's slot ends only when the handle gets
  // another.
  std::optional<std::uint64_t> end_one(std::uint64_t capture, std::uint64_t workspace, bool for_one);
  // In a capture that is learned from, all slots exist at once: they have to fit into a part of what is free at the
  // first request. Nothing if that is not known yet.
  std::optional<std::uint64_t> left(std::uint64_t capture);
  void bound(std::uint64_t capture, std::uint64_t free);
  // Whether the capture may have so many more bytes. The first product beyond that, and all later ones, use the
  // program's workspace.
  bool may_have(std::uint64_t capture, std::uint64_t bytes);
  void full(std::uint64_t capture);
  // `for_one`: for one product, not a handle. `nodes`: the capture's nodes so far.
  void began(std::uint64_t capture, std::uint64_t workspace, std::uint64_t slot, std::uint64_t bytes, std::size_t nodes,
             bool for_one);
  // The capture ends: returns its slots, to be released.
  std::vector<std::uint64_t> end(std::uint64_t capture);

  // The divisor. With 60 GiB free, all products of a language model with 32 layers get theirs, of 32 MiB each; and the
  // rest of a capture, without reuse, seldom needs more than the other seven eighths.
  static constexpr std::uint64_t kPartOfWhatIsFree = 8;

 private:
  struct Slot {
    std::uint64_t address = 0, bytes = 0;
    std::size_t nodes = 0;
    bool claimed = false;
  };
  struct Capture {
    std::map<std::pair<std::uint64_t, bool>, Slot>
        slots;                          // by the workspace that they replace, and whether for one product
    std::optional<std::uint64_t> left;  // bytes that it may have; nothing: not asked yet
  };

  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Capture> captures_;
};

}  // namespace nimble::shim
