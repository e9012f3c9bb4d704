// A program of several threads, each with a stream and memory of its own: what replay must leave alone while it
// replays one of them, and where they hand each other work.
//
//   crowd THREADS STEPS SEED [STREAM [WHO [WHAT]]]    prints one line, the digest of all state at the end
//
//   STREAM   of the threads that run the regular step: nonblocking (default), blocking, legacy
//   WHO      runs it: one (default), all
//   WHAT     the only kind of hand-over that happens, by name; default: any
//
// If all of several run it, they end with kAlone more steps each, one thread after the other: these run undisturbed.
//
// With one thread, or seed 0, there are no hand-overs: a schedule is made from `crowd 1 N 0`. Otherwise about every
// third step one thread hands something to another, in the middle of its step or between two, and the other makes a
// call that must not be made before the first one's work is submitted, or that changes what the first one uses. What
// is computed depends on the arguments alone, never on timing.
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 128;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr int kSlots = 2;
constexpr int kAlone = 8;

// The hand-overs, by what the taking thread does. All but the last happen in the middle of the giver's step.
enum What : unsigned {
  kWaitEvent,     // its stream waits for the giver's event
  kSyncEvent,     // it waits for the event
  kPollEvent,     // it asks for the event until it has happened
  kSyncStream,    // it waits for the giver's stream
  kSyncContext,   // it waits for everything
  kImplicit,      // it reads the giver's tensor where the legacy stream's order with blocking streams allows it
  kRecordAgain,   // it records the giver's event on its own stream
  kDestroyEvent,  // it destroys the giver's event and makes another
  kFree,          // it frees the giver's tensor on its own stream
  kFreeNow,       // it frees the giver's tensor by cuMemFree
  kRange,         // it asks which allocation an address belongs to
  kMoveState,     // it moves a buffer of the giver's to memory that it allocates
  kWhats
};
constexpr std::array<std::string_view, kWhats> kNames = {"wait_event",   "sync_event", "poll_event",   "sync_stream",
                                                         "sync_context", "implicit",   "record_again", "destroy_event",
                                                         "free",         "free_now",   "range",        "move_state"};

struct Settings {
  int threads = 1, steps = 0;
  unsigned seed = 0;
  std::string_view stream = "nonblocking", who = "one", what;
};

// Two threads meet at a step: one offers something and waits until the other is done with it.
class Meeting {
 public:
  struct Offer {
    CUstream stream = nullptr;
    CUevent* event = nullptr;
    CUdeviceptr tensor = 0;
    CUdeviceptr* state = nullptr;
    CUdeviceptr reply = 0;  // from the taker
  };

  // The giver. The offer as the taker left it.
  Offer offer(const Offer& what) {
    std::unique_lock lock(mutex_);
    offer_ = what;
    phase_ = 1;
    changed_.notify_all();
    changed_.wait(lock, [&] { return phase_ == 2; });
    return offer_;
  }
  // The taker.
  Offer take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return phase_ == 1; });
    return offer_;
  }
  void done(const Offer& reply) {
    const std::lock_guard lock(mutex_);
    offer_ = reply;
    phase_ = 2;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int phase_ = 0;
  Offer offer_;
};

// At the end: all come, and then each has its turn.
class Turns {
 public:
  void await(int who, int count) {
    std::unique_lock lock(mutex_);
    ++come_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return come_ == count && next_ == who; });
  }
  void pass() {
    const std::lock_guard lock(mutex_);
    ++next_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int come_ = 0, next_ = 0;
};

struct Plan {
  int giver = -1, taker = -1;
  What what = kWaitEvent;
};

struct Shared {
  Settings settings;
  CUcontext context = nullptr;
  CUfunction mix1 = nullptr, mix3 = nullptr, update = nullptr;
  std::vector<Plan> plans;       // by step
  std::deque<Meeting> meetings;  // by step
  Turns turns;
};

std::vector<Plan> make_plans(const Settings& settings) {
  std::vector<Plan> plans(static_cast<std::size_t>(settings.steps));
  if (settings.threads == 1 || settings.seed == 0) return plans;
  std::mt19937 random(settings.seed);
  const auto draw = [&](auto below) { return random() % static_cast<unsigned>(below); };
  for (Plan& plan : plans) {
    if (draw(3) != 0) continue;
    plan.giver = settings.who == "all" ? static_cast<int>(draw(settings.threads)) : 0;
    plan.taker = (plan.giver + 1 + static_cast<int>(draw(settings.threads - 1))) % settings.threads;
    plan.what = static_cast<What>(draw(kWhats));
    for (unsigned i = 0; i < kWhats; ++i) {
      if (settings.what == kNames[i]) plan.what = static_cast<What>(i);
    }
  }
  return plans;
}

class Member {
 public:
  Member(Shared& shared, int index)
      : shared_(shared), index_(index), steps_regularly_(index == 0 || shared.settings.who == "all") {}

  // The body of the thread.
  void run() {
    CHECK(cuCtxSetCurrent(shared_.context));
    const std::string_view kind = steps_regularly_ ? shared_.settings.stream : index_ % 2 ? "nonblocking" : "blocking";
    if (kind != "legacy") {
      CHECK(cuStreamCreate(&stream_, kind == "blocking" ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    waits_for_legacy_ = kind != "nonblocking";
    for (CUdeviceptr& state : states_) {
      CHECK(cuMemAlloc(&state, kBytes));
      CHECK(cuMemsetD32Async(state, 17u + static_cast<unsigned>(index_ * 5 + (&state - states_.data())), kCount,
                             stream_));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&pinned_), kBytes * kSlots));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    for (CUevent& event : events_) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const int steps = shared_.settings.steps;
    for (int i = 0; i < steps; ++i) step(i);
    const bool in_turn = shared_.settings.who == "all" && shared_.settings.threads > 1;
    if (in_turn) {
      shared_.turns.await(index_, shared_.settings.threads);
      for (int i = 0; i < kAlone; ++i) regular_step(steps + i, nullptr);
    }
    for (CUdeviceptr& state : states_) {
      read_back(state);
      CHECK(cuMemFree(state));
    }
    for (const CUevent event : events_) CHECK(cuEventDestroy(event));
    if (stream_) CHECK(cuStreamDestroy(stream_));
    if (in_turn) shared_.turns.pass();
  }

  std::uint64_t digest() const { return digest_; }

 private:
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  void mix(CUfunction kernel, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  void update(CUdeviceptr state, CUdeviceptr change) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(shared_.update, 2, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  CUdeviceptr allocate(std::size_t bytes = kBytes) {
    CUdeviceptr tensor = 0;
    CHECK(cuMemAllocAsync(&tensor, bytes, stream_));
    return tensor;
  }
  void free(CUdeviceptr tensor) { CHECK(cuMemFreeAsync(tensor, stream_)); }

  void note_result() {
    for (int i = 0; i < kCount; ++i) note(result_[i]);
  }
  void read_back(CUdeviceptr tensor) {
    CHECK(cuMemcpyDtoHAsync(result_, tensor, kBytes, stream_));
    CHECK(cuStreamSynchronize(stream_));
    note_result();
  }

  void step(int number) {
    const Plan& plan = shared_.plans[static_cast<std::size_t>(number)];
    if (plan.taker == index_) take(plan.what, shared_.meetings[static_cast<std::size_t>(number)]);
    if (plan.giver == index_ && plan.what == kMoveState) give(plan, number, 0, 0);
    if (steps_regularly_) {
      regular_step(number, plan.giver == index_ && plan.what != kMoveState ? &plan : nullptr);
    } else {
      other_step(number);
    }
    if (number % 16 == 15) read_back(states_[0]);
  }

  // The step that a schedule has: an input, two branches, a join.
  void regular_step(int number, const Plan* plan) {
    const int slot = number % kSlots;
    CHECK(cuEventSynchronize(events_[slot]));
    unsigned* const source = pinned_ + slot * kCount;
    for (int i = 0; i < kCount; ++i) source[i] = static_cast<unsigned>(number * 977 + i * 31 + index_);
    const CUdeviceptr x = allocate();
    CHECK(cuMemcpyHtoDAsync(x, source, kBytes, stream_));
    const CUdeviceptr a = allocate(), b = allocate();
    mix(shared_.mix1, x, states_[0], a, 3);
    mix(shared_.mix3, x, states_[1], b, 5);
    CHECK(cuEventRecord(events_[slot], stream_));
    bool freed = false;
    if (plan) freed = give(*plan, number, slot, x);
    const CUdeviceptr sum = allocate();
    CHECK(cuMemsetD32Async(sum, 3, kCount, stream_));
    update(sum, a);
    update(sum, b);
    update(states_[0], sum);
    update(states_[1], b);
    if (!freed) free(x);
    for (const CUdeviceptr tensor : {a, b, sum}) free(tensor);
  }

  // Something else, of other shapes and with other allocators.
  void other_step(int number) {
    const CUdeviceptr x = allocate(2 * kBytes);
    CHECK(cuMemsetD32Async(x, static_cast<unsigned>(number + index_), 2 * kCount, stream_));
    mix(shared_.mix1, x, states_[0], x + kBytes, static_cast<unsigned>(number));
    update(states_[0], x + kBytes);
    update(states_[1], states_[0]);
    if (number % 8 == index_) {
      CUdeviceptr moved = 0;
      CHECK(cuMemAlloc(&moved, kBytes));
      CHECK(cuMemcpyDtoDAsync(moved, states_[1], kBytes, stream_));
      CHECK(cuStreamSynchronize(stream_));
      CHECK(cuMemFree(states_[1]));
      states_[1] = moved;
    }
    if (number % 16 == index_ + 4 && waits_for_legacy_) {
      CHECK(cuMemsetD32(x, 7, kCount));
      update(states_[1], x);
    }
    free(x);
    if (number % 4 == 3) read_back(states_[1]);
  }

  // Whether the taker has freed the tensor.
  bool give(const Plan& plan, int number, int slot, CUdeviceptr tensor) {
    const Meeting::Offer reply =
        shared_.meetings[static_cast<std::size_t>(number)].offer({stream_, &events_[slot], tensor, &states_[1], 0});
    if (plan.what == kRecordAgain) {
      CHECK(cuStreamWaitEvent(stream_, events_[slot], 0));
      update(states_[1], reply.reply);
      free(reply.reply);
    }
    // The event is not what it was, and guards the slot of the input.
    if (plan.what == kRecordAgain || plan.what == kDestroyEvent) CHECK(cuEventRecord(events_[slot], stream_));
    return plan.what == kFree || plan.what == kFreeNow;
  }

  void take(What what, Meeting& meeting) {
    Meeting::Offer offer = meeting.take();
    switch (what) {
      case kWaitEvent:
        CHECK(cuStreamWaitEvent(stream_, *offer.event, 0));
        break;
      case kSyncEvent:
        CHECK(cuEventSynchronize(*offer.event));
        break;
      case kPollEvent:
        while (cuEventQuery(*offer.event) == CUDA_ERROR_NOT_READY) {
        }
        break;
      case kSyncStream:
      case kFree:
      case kFreeNow:
      case kMoveState:
        CHECK(cuStreamSynchronize(offer.stream));
        break;
      case kSyncContext:
        CHECK(cuCtxSynchronize());
        break;
      case kImplicit:
        // Where the giver's stream is the legacy one, this thread's own stream comes after it if it blocks.
        if (shared_.settings.stream == "legacy" && waits_for_legacy_) break;
        if (shared_.settings.stream == "nonblocking") CHECK(cuStreamSynchronize(offer.stream));
        CHECK(cuMemcpyDtoHAsync(result_, offer.tensor, kBytes, CU_STREAM_LEGACY));
        CHECK(cuStreamSynchronize(CU_STREAM_LEGACY));
        note_result();
        meeting.done(offer);
        return;
      case kRecordAgain:
        // The giver's stream is to wait for this, by its own event.
        offer.reply = allocate();
        mix(shared_.mix3, states_[0], states_[1], offer.reply, 9);
        CHECK(cuEventRecord(*offer.event, stream_));
        meeting.done(offer);
        return;
      case kDestroyEvent:
        CHECK(cuEventDestroy(*offer.event));
        CHECK(cuEventCreate(offer.event, CU_EVENT_DISABLE_TIMING));
        meeting.done(offer);
        return;
      case kRange:
      case kWhats:
        break;
    }
    if (what == kRange) {
      CUdeviceptr base = 0;
      std::size_t size = 0;
      CHECK(cuMemGetAddressRange(&base, &size, offer.tensor + 8));
      note(base == offer.tensor);
      note(static_cast<unsigned>(size >= kBytes && size < 2 * kBytes));
      meeting.done(offer);
      return;
    }
    // Now the giver's work is done, or this stream comes after it.
    const CUdeviceptr copy = allocate();
    CHECK(cuMemcpyDtoDAsync(copy, what == kMoveState ? *offer.state : offer.tensor, kBytes, stream_));
    update(states_[0], copy);
    if (what == kFree) free(offer.tensor);
    read_back(copy);
    if (what == kFreeNow) CHECK(cuMemFree(offer.tensor));
    if (what == kMoveState) {
      CUdeviceptr moved = 0;
      CHECK(cuMemAlloc(&moved, kBytes));
      CHECK(cuMemcpyDtoDAsync(moved, *offer.state, kBytes, stream_));
      CHECK(cuStreamSynchronize(stream_));
      CHECK(cuMemFree(*offer.state));
      *offer.state = moved;
    }
    free(copy);
    meeting.done(offer);
  }

  Shared& shared_;
  const int index_;
  const bool steps_regularly_;
  bool waits_for_legacy_ = false;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 2> states_{};
  std::array<CUevent, kSlots> events_{};
  unsigned* pinned_ = nullptr;
  unsigned* result_ = nullptr;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 7) {
    std::fprintf(stderr, "usage: crowd THREADS STEPS SEED [nonblocking|blocking|legacy [one|all [WHAT]]]\n");
    return 2;
  }
  Shared shared;
  Settings& settings = shared.settings;
  settings.threads = std::atoi(argv[1]);
  settings.steps = std::atoi(argv[2]);
  settings.seed = static_cast<unsigned>(std::atoi(argv[3]));
  if (argc > 4) settings.stream = argv[4];
  if (argc > 5) settings.who = argv[5];
  if (argc > 6) settings.what = argv[6];
  shared.context = start_driver();
  CUmodule module = nullptr;
  CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&shared.mix1, module, "_Z3mixILi1EEvPKjS1_Pjij"));
  CHECK(cuModuleGetFunction(&shared.mix3, module, "_Z3mixILi3EEvPKjS1_Pjij"));
  CHECK(cuModuleGetFunction(&shared.update, module, "_Z6updateILi1EEvPjPKji"));
  shared.plans = make_plans(settings);
  for (int i = 0; i < settings.steps; ++i) shared.meetings.emplace_back();

  std::deque<Member> members;
  for (int i = 0; i < settings.threads; ++i) members.emplace_back(shared, i);
  std::vector<std::thread> threads;
  for (Member& member : members) threads.emplace_back([&member] { member.run(); });
  for (std::thread& thread : threads) thread.join();
  std::uint64_t digest = 0;
  for (const Member& member : members) digest = digest * 1099511628211u ^ member.digest();
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}
