// Random programs of several threads: calls that bypass the player, beside a player that sees them all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "replayer/bystanders/bystanders.h"
#include "replayer/step/step_player.h"
#include "tests/unit/replayer/bystanders/bystanders_support.h"
#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

using Log = std::vector<std::string>;

const CUevent kRecorded = reinterpret_cast<CUevent>(0x50), kOlder = reinterpret_cast<CUevent>(0x51);
// The default stream of a thread.
const StreamRef kPerThread{CU_STREAM_PER_THREAD, 0x8 | 2};

// What the replayer does with each call, and what it would do if every call went to the player: both must answer and
// submit the same, whatever comes, in whatever order.
class Pair {
 public:
  Pair(const Schedule& s, FakeDriver& driver, const DriverApi& api)
      : driver_(driver),
        reference_(s, driver, api, reference_counters_),
        subject_(s, driver, api, subject_counters_),
        bystanders_(std::make_unique<Bystanders>(subject_.schedule(), driver)) {}

  // Before the driver sees the call: the answer. False if the two disagree.
  bool before(Call& call, Answer& answer) {
    Call mine = call;
    answer = reference_.before(call);
    const Log expected = take_log();
    Answer subjects;
    const bool passed = bystanders_->passes(mine);
    if (!passed) {
      drain();
      subjects = subject_.before(mine);
      bystanders_->publish(subject_.state());
    } else {
      ++passes;
      passes_while_holding += reference_.holding() != 0;
    }
    const Log submitted = take_log();
    graphs += static_cast<std::size_t>(std::count(expected.begin(), expected.end(), "graph"));
    return subjects == answer && submitted == expected && mine.memory.address == call.memory.address &&
           mine.memory.size == call.memory.size && agree();
  }

  // The driver has answered.
  bool after(const Call& call, CUresult result) {
    if (!call.traced) return true;
    reference_.after(call, result);
    const Log expected = take_log();
    if (!bystanders_->passed(call, result)) {
      drain();
      subject_.after(call, result);
      bystanders_->publish(subject_.state());
    } else {
      ++passes;
    }
    return take_log() == expected && agree();
  }

  bool stood_aside() const { return !reference_.stood_aside().empty(); }
  bool holding() const { return reference_.holding() != 0; }
  // At the end: whether all was counted alike.
  bool counted_alike() {
    return reference_counters_.ops_passed_through == subject_counters_.ops_passed_through + bystanders_->ops() &&
           reference_counters_.steps_replayed == subject_counters_.steps_replayed &&
           reference_counters_.reasons == subject_counters_.reasons &&
           reference_counters_.flushes == subject_counters_.flushes;
  }
  std::string difference() const {
    const auto text = [](const StepPlayer& player) {
      const Bystanders::State s = player.state();
      return std::to_string(s.streams.empty() ? 0 : s.streams[0].key) + (s.holding ? " holding " : " ") +
             std::to_string(player.holding()) + " " + player.stood_aside();
    };
    return "player alone: " + text(reference_) + "; beside bystanders: " + text(subject_);
  }

  std::size_t passes = 0, passes_while_holding = 0, graphs = 0;

 private:
  bool agree() const {
    Bystanders::State one = reference_.state(), other = subject_.state();
    one.version = other.version = 0;
    return one == other && std::ranges::equal(one.streams, other.streams) &&
           reference_.holding() == subject_.holding() && reference_.stood_aside() == subject_.stood_aside();
  }
  void drain() {
    bystanders_->news.drain([this](const MemoryEvent& event) { subject_.note(event); });
  }
  Log take_log() { return std::exchange(driver_.log, {}); }

  FakeDriver& driver_;
  Counters reference_counters_, subject_counters_;
  StepPlayer reference_, subject_;
  const std::unique_ptr<Bystanders> bystanders_;
};

// A program of four threads. The first issues the step, and now and then something else; the others make any call,
// now and then on the first one's stream.
class Walk {
 public:
  Walk(unsigned seed, FakeDriver& driver, Pair& pair, First first)
      : random_(seed), driver_(driver), pair_(pair), first_(first), step_local_(first == First::alloc) {
    const StreamRef choices[] = {stream(FakeDriver::kStream), stream(FakeDriver::kBlocking), kLegacy};
    stream_ = choices[seed % 3];
    weights_ = allocate(64, MemoryKind::device);
    if (!step_local_) tensor_ = allocate(128, MemoryKind::device);
    steps_ = first == First::alloc ? 9 : first == First::launch ? 7 : 8;
  }

  // False where the pair disagrees; `what` then says at which call.
  bool run(int calls, std::string& what) {
    for (int i = 0; i < calls && !pair_.stood_aside(); ++i) {
      if (draw(3) == 0 && !land()) return what = "an outcome", false;
      const std::uint32_t thread = draw(10) < 7 ? 0 : draw(4);
      const bool busy = std::any_of(flying_.begin(), flying_.end(), [&](auto& f) { return f.call.thread == thread; });
      if (busy) continue;
      Call call = thread == 0 && draw(12) != 0 ? step_op() : any_call();
      call.thread = thread;
      what = std::string(call.traced ? name(call.kind) : "untraced") + " on " + std::to_string(call.stream.key);
      if (!issue(call)) return false;
    }
    while (!flying_.empty()) {
      if (!land()) return what = "an outcome", false;
    }
    return true;
  }

 private:
  struct Flight {
    Call call;
    CUresult result;
    bool is_tensor;
  };

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  std::uint64_t allocate(std::uint64_t size, MemoryKind memory) {
    Call c;
    c.kind = CallKind::alloc;
    c.traced = true;
    c.memory.address = fresh_ += 0x1000;
    c.memory.size = size;
    c.memory.kind = memory;
    EXPECT_TRUE(pair_.after(c, CUDA_SUCCESS));
    return c.memory.address;
  }

  Call launch(StreamRef on, std::uint64_t pointer, CUfunction function = FakeDriver::kKernel) {
    pointer_ = pointer;
    number_ = draw(4) == 0 ? draw(3) : 1;
    Call c = op(CallKind::launch, on);
    c.launch.function = function;
    c.launch.grid = c.launch.block = {1, 1, 1};
    c.launch.kernel_params = params_;
    return c;
  }

  // The step's next op.
  Call step_op() {
    const unsigned index = (first_ == First::launch ? 1 : 0) + position_++ % steps_;
    switch (index) {
      case 0: {
        if (!step_local_) return launch(stream_, weights_, kStranger);
        Call c = op(CallKind::alloc_async, stream_);
        c.memory.size = 128;
        c.memory.kind = MemoryKind::stream_ordered;
        awaits_tensor_ = true;
        return c;
      }
      case 1:
      case 7:
        return launch(stream_, tensor_);
      case 2: {
        Call c = op(CallKind::set, stream_);
        c.transfer.dst.address = tensor_;
        c.transfer.width = 64;
        c.transfer.element = 4;
        c.transfer.value = draw(2);
        return c;
      }
      case 3: {
        Call c = op(CallKind::event_record, stream_);
        c.event = kRecorded;
        return c;
      }
      case 5:
        return op(CallKind::host_function, stream_);
      case 8: {
        Call c = op(CallKind::free_async, stream_);
        c.memory.address = tensor_;
        return c;
      }
      default:
        return launch(stream_, weights_);
    }
  }

  // Any call that a program may make.
  Call any_call() {
    const StreamRef choices[] = {stream(FakeDriver::kOther), stream(FakeDriver::kBlocking), stream(FakeDriver::kStream),
                                 kLegacy, kPerThread};
    const StreamRef on = draw(3) == 0 ? choices[draw(5)] : choices[0];
    const std::uint64_t addresses[] = {tensor_, FakeDriver::kArena + draw(300), fresh_, 0x5, fresh_ - 0x1000};
    const std::uint64_t address = addresses[draw(5)];
    const auto host = static_cast<HostEffect>(draw(3));
    const unsigned which = draw(100);
    Call c;
    c.host = host;
    if (which < 4) {  // something that no trace holds
      c.has_stream = draw(2) == 0;
      if (c.has_stream) c.stream = on;
    } else if (which < 8) {
      c.asked.question = Question::memory;
      c.memory.address = address;
    } else if (which < 12) {
      c.ends = static_cast<Ends>(1 + draw(3));
      c.host = HostEffect::observe;
      c.event = draw(2) == 0 ? kRecorded : kOlder;
      c.stream = on;
      c.has_stream = c.ends == Ends::stream;
    } else if (which < 13 && draw(10) == 0) {
      c.kind = draw(2) == 0 ? CallKind::hidden : CallKind::context_end;
      c.traced = true;
      c.note = "something";
    } else if (which < 30) {
      c = launch(on, draw(2) == 0 ? weights_ : address, draw(2) == 0 ? FakeDriver::kKernel : kStranger);
      c.plain = draw(8) != 0;
    } else if (which < 36) {  // buffers move
      if (draw(2) == 0 && !step_local_) return c = released(tensor_), tensor_ = allocate(128, MemoryKind::device), c;
      return c = released(weights_), weights_ = allocate(64, MemoryKind::device), c;
    } else {
      c.kind = static_cast<CallKind>(draw(static_cast<unsigned>(CallKind::capture_end) + 1));
      c.traced = true;
      c.has_stream = is_op(c.kind) || c.kind == CallKind::stream_synchronize || c.kind == CallKind::capture_begin ||
                     c.kind == CallKind::capture_end;
      if (c.has_stream) c.stream = on;
      if (c.kind == CallKind::capture_begin || c.kind == CallKind::capture_end) {
        // Most calls would be made while a stream captures, otherwise.
        if (c.kind == CallKind::capture_end || capturing_.key || draw(4) != 0) return any_call();
      }
      if (c.kind == CallKind::launch) return launch(on, address, kStranger);
      if (c.kind == CallKind::event_record || c.kind == CallKind::event_wait || c.kind == CallKind::event_synchronize)
        c.event = draw(2) == 0 ? kRecorded : kOlder;
      c.memory.address = address;
      c.transfer.dst.address = c.transfer.src.address = address;
      c.memory.size = draw(2) == 0 ? 64 : 128;
      c.transfer.width = 64;
      c.transfer.element = 4;
      c.memory.kind = c.kind == CallKind::alloc_async ? MemoryKind::stream_ordered : MemoryKind::device;
    }
    return c;
  }

  Call released(std::uint64_t address) {
    Call c;
    c.kind = CallKind::free;
    c.traced = true;
    c.host = HostEffect::observe;
    c.memory.address = address;
    return c;
  }

  bool issue(Call& call) {
    const bool is_tensor = std::exchange(awaits_tensor_, false);
    if (capturing_.key && draw(4) == 0 && !end_capture()) return false;
    Answer answer;
    if (!pair_.before(call, answer)) return false;
    if (answer) {
      if (is_tensor && *answer == CUDA_SUCCESS) tensor_ = call.memory.address;
      return true;
    }
    const CUresult result = draw(40) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (call.kind == CallKind::capture_begin && result == CUDA_SUCCESS) {
      capturing_ = call.stream;
      driver_.capturing = {call.stream.handle};
    }
    flying_.push_back({call, result, is_tensor});
    return draw(3) == 0 || land();
  }

  // A stream's capture ends: mostly it does.
  bool end_capture() {
    Call end = op(CallKind::capture_end, capturing_);
    Answer ignored;
    if (!pair_.before(end, ignored)) return false;
    const bool goes_on = draw(4) == 0;
    if (!goes_on) {
      driver_.capturing.clear();
      capturing_ = {};
    }
    return pair_.after(end, goes_on ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS);
  }

  // The driver answers one of the calls that are under way.
  bool land() {
    if (flying_.empty()) return true;
    const std::size_t index = draw(static_cast<unsigned>(flying_.size()));
    Flight flight = flying_[index];
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(index));
    Call& call = flight.call;
    if (call.kind == CallKind::alloc || call.kind == CallKind::alloc_async) call.memory.address = fresh_ += 0x1000;
    if (flight.is_tensor && flight.result == CUDA_SUCCESS) tensor_ = call.memory.address;
    return pair_.after(call, flight.result);
  }

  static inline const CUfunction kStranger = reinterpret_cast<CUfunction>(0x11);

  std::mt19937 random_;
  FakeDriver& driver_;
  Pair& pair_;
  const First first_;
  const bool step_local_;
  StreamRef stream_;
  unsigned position_ = 0, steps_ = 0;
  std::uint64_t fresh_ = 0x10000, weights_ = 0, tensor_ = 0x20;
  bool awaits_tensor_ = false;
  StreamRef capturing_;
  std::uint64_t pointer_ = 0;
  std::uint32_t number_ = 0;
  void* params_[2] = {&pointer_, &number_};
  std::vector<Flight> flying_;
};

TEST(Bystanders, WhatPassesIsNothingThatThePlayerWouldHaveActedOn) {
  std::size_t passes = 0, passes_while_holding = 0, graphs = 0, aside = 0;
  constexpr unsigned kWalks = 400;
  for (unsigned seed = 1; seed <= kWalks; ++seed) {
    FakeDriver driver;
    const DriverApi api = driver.api();
    const First first = std::array{First::alloc, First::launch, First::direct_launch}[seed / 3 % 3];
    Pair pair(schedule(first), driver, api);
    Walk walk(seed, driver, pair, first);
    std::string what;
    ASSERT_TRUE(walk.run(500, what)) << "seed " << seed << ": " << what << "; " << pair.difference();
    ASSERT_TRUE(pair.counted_alike()) << "seed " << seed;
    passes += pair.passes;
    passes_while_holding += pair.passes_while_holding;
    graphs += pair.graphs;
    aside += pair.stood_aside();
  }
  // The walks would show nothing if little passed, little was held, or replay stood aside.
  EXPECT_GT(passes, kWalks * 50);
  EXPECT_GT(passes_while_holding, kWalks * 5);
  EXPECT_GT(graphs, kWalks * 10);
  EXPECT_LT(aside, kWalks);
}

}  // namespace
}  // namespace nimble
