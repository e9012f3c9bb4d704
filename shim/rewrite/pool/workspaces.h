// What stands for a workspace of cuBLAS's in captures whose memory is the capture pool's (capture_pool.h): a slot of
// its own for each product of matrices.
//
// A program gives cuBLAS one piece of memory to work in for each stream (cublasSetWorkspace), or with each product
// (cublasLtMatmul). What is there is of no use to anybody once the product is done. But products that all work in the
// same memory can only follow each other, whatever they compute; with slots they are ordered as any nodes are, and
// their slots share memory where the order allows it. Kernels, and the size of what they work in, stay what they were.
//
// A slot is taken when the workspace is given, and released when the same one is given again in that way in that
// capture and there is work since, or the capture ends. Bytes as the program gave them. One lock; any thread. Knows of
// slots only: shim/rewrite/allocate/workspace_slots.h takes and releases them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace nimble::shim {

class Workspaces {
 public:
  // A slot that was given to whoever calls next with a handle of cuBLAS's, and that nobody works in yet: the capture
  // has as many nodes still. Who has one product for it claims it. Nothing where there is none for this workspace of
  // the program's, or it is smaller.
  std::optional<std::uint64_t> given(std::uint64_t capture, std::uint64_t workspace, std::uint64_t bytes,
                                     std::size_t nodes, bool claims);
  // The slot that stands for it ends; nothing where there is none. `for_one`: as of began(). One that is a handle's
  // ends only where the handle gets another.
  std::optional<std::uint64_t> end_one(std::uint64_t capture, std::uint64_t workspace, bool for_one);
  // Of a capture that is learned from all slots are there at once: they have to fit into a part of what is free when
  // its first one is asked for. Nothing where that is not known yet.
  std::optional<std::uint64_t> left(std::uint64_t capture);
  void bound(std::uint64_t capture, std::uint64_t free);
  // Whether the capture may have so many bytes more. Products beyond that work where the program has them work; once
  // there is one, all do.
  bool may_have(std::uint64_t capture, std::uint64_t bytes);
  void full(std::uint64_t capture);
  // `for_one`: for one product, and no handle. `nodes`: of the capture by now.
  void began(std::uint64_t capture, std::uint64_t workspace, std::uint64_t slot, std::uint64_t bytes, std::size_t nodes,
             bool for_one);
  // The capture ends: its slots, for who releases them.
  std::vector<std::uint64_t> end(std::uint64_t capture);

  // One part in so many. Of 60 GiB all products of a language model with 32 layers have theirs, 32 MiB each; and what a
  // capture needs besides, all of it apart, is seldom what is left to the last eighth.
  static constexpr std::uint64_t kPartOfWhatIsFree = 8;

 private:
  struct Slot {
    std::uint64_t address = 0, bytes = 0;
    std::size_t nodes = 0;
    bool claimed = false;
  };
  struct Capture {
    std::map<std::pair<std::uint64_t, bool>, Slot> slots;  // by what they stand for, and whether that is for one
    std::optional<std::uint64_t> left;                     // bytes that it may have; nothing: it was not asked yet
  };

  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Capture> captures_;
};

}  // namespace nimble::shim
