#include "bench/by_hand/capture_stream.h"

#include "examples/digits/error.h"

namespace nimble::bench {

using digits::check;

CaptureStream::~CaptureStream() {
  for (CUstream lane : lanes_) cuStreamDestroy(lane);
}

void CaptureStream::begin() {
  memory_used_ = marks_used_ = lanes_used_ = 0;
  asides_.clear();
  // Relaxed, so that memory can be allocated meanwhile.
  check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  capturing_ = true;
}

std::unique_ptr<Graph> CaptureStream::end() {
  capturing_ = false;
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  const CUresult result = cuGraphInstantiate(&exec, graph, 0);
  cuGraphDestroy(graph);
  check(result, "cuGraphInstantiate");
  auto made = std::make_unique<Graph>(exec);
  check(cuGraphUpload(exec, stream_), "cuGraphUpload");
  return made;
}

void CaptureStream::launch_graph(const Graph& graph) {
  check(cuGraphLaunch(graph.get(), stream_), "cuGraphLaunch");
  ++operations_;
}

// A plain record within a capture only marks a place for other streams: this one is for the host.
void CaptureStream::record(const digits::Event& event) {
  if (!capturing_) return Stream::record(event);
  check(cuEventRecordWithFlags(event.get(), stream_, CU_EVENT_RECORD_EXTERNAL), "cuEventRecordWithFlags");
  ++operations_;
}

void CaptureStream::fork() {
  if (branches()) forks_.push_back({stream_, mark(), {}});
}

void CaptureStream::branch() {
  if (!branches()) return;
  Fork& fork = forks_.back();
  if (stream_ != fork.before) fork.ends.push_back(mark());
  stream_ = next_lane();
  wait_for(fork.point);
}

void CaptureStream::join() {
  if (!branches()) return;
  Fork& fork = forks_.back();
  if (stream_ != fork.before) fork.ends.push_back(mark());
  stream_ = fork.before;
  for (CUevent end : fork.ends) wait_for(end);
  forks_.pop_back();
}

void CaptureStream::begin_aside() {
  if (!branches()) return;
  fork();
  branch();
}

void CaptureStream::end_aside() {
  if (!branches()) return;
  asides_.push_back(mark());
  stream_ = forks_.back().before;
  forks_.pop_back();
}

void CaptureStream::join_asides() {
  for (CUevent end : asides_) wait_for(end);
  asides_.clear();
}

CUdeviceptr CaptureStream::allocate(std::size_t bytes) {
  if (!capturing_) return Stream::allocate(bytes);
  if (memory_used_ == memory_.size()) memory_.emplace_back(bytes);
  const digits::DeviceBuffer& memory = memory_[memory_used_++];
  if (memory.bytes() != bytes) throw digits::Error("a capture needs other memory than the previous one");
  return memory.address();
}

void CaptureStream::free(CUdeviceptr address) noexcept {
  if (!capturing_) Stream::free(address);
}

CUevent CaptureStream::mark() {
  if (marks_used_ == marks_.size()) marks_.push_back(std::make_unique<digits::Event>(CU_EVENT_DISABLE_TIMING));
  CUevent event = marks_[marks_used_++]->get();
  check(cuEventRecord(event, stream_), "cuEventRecord");
  return event;
}

void CaptureStream::wait_for(CUevent mark) { check(cuStreamWaitEvent(stream_, mark, 0), "cuStreamWaitEvent"); }

CUstream CaptureStream::next_lane() {
  if (lanes_used_ == lanes_.size()) {
    CUstream lane = nullptr;
    check(cuStreamCreate(&lane, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    lanes_.push_back(lane);
  }
  return lanes_[lanes_used_++];
}

}  // namespace nimble::bench
