// A stream of examples/digits that can be captured: what is enqueued between begin and end becomes a CUDA graph by
// hand, as a careful engineer writes one. Every tensor keeps its own memory, and what the program marks as branches
// becomes branches of the graph; or, with Shape::line, all of it one line.
//
// The next capture reuses memory, streams and events, so graphs of one CaptureStream must not run concurrently: launch
// all of them on it. One thread. Errors are thrown as digits::Error.
#pragma once

#include <memory>
#include <vector>

#include "examples/digits/driver.h"

namespace nimble::bench {

enum class Shape { line, branches };

// A graph that can be launched, again and again.
class Graph {
 public:
  explicit Graph(CUgraphExec exec) : exec_(exec) {}
  ~Graph() { cuGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CUgraphExec get() const { return exec_; }

 private:
  CUgraphExec exec_;
};

class CaptureStream final : public digits::Stream {
 public:
  explicit CaptureStream(Shape shape) : shape_(shape) {}
  ~CaptureStream() override;

  void begin();
  // The graph is uploaded to the device before its first launch.
  std::unique_ptr<Graph> end();
  void launch_graph(const Graph& graph);

  void record(const digits::Event& event) override;
  void fork() override;
  void branch() override;
  void join() override;
  void begin_aside() override;
  void end_aside() override;
  void join_asides() override;

 private:
  struct Fork {
    CUstream before;            // also that of the first branch
    CUevent point;              // precedes all branches
    std::vector<CUevent> ends;  // of the branches but the first
  };

  CUdeviceptr allocate(std::size_t bytes) override;
  void free(CUdeviceptr address) noexcept override;
  bool branches() const { return capturing_ && shape_ == Shape::branches; }
  CUevent mark();               // the end of the current stream
  void wait_for(CUevent mark);  // on the current stream
  CUstream next_lane();

  const Shape shape_;
  bool capturing_ = false;
  std::vector<Fork> forks_;
  std::vector<CUevent> asides_;
  // Of captures, in the order in which they are needed; the numbers say how many this capture has.
  std::vector<digits::DeviceBuffer> memory_;
  std::vector<std::unique_ptr<digits::Event>> marks_;
  std::vector<CUstream> lanes_;
  std::size_t memory_used_ = 0, marks_used_ = 0, lanes_used_ = 0;
};

}  // namespace nimble::bench
