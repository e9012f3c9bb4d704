// NIMBLE_CAPTURE=bundle: saves one step of the program, with its code and its memory, for nimble-replay to run.
//
// StepWatch says that the next op begins a step. Then we wait for all streams and read all live memory. The host
// sources of the step's copies are kept when the copies are called. After the step's last op we read memory again; what
// the step can reach (by its parameters, or by what looks like addresses in memory that it can reach) goes into the
// bundle, and the rest is dropped. If the step turns out to be different, or holds what a bundle cannot, nothing is
// written and the search goes on.
//
// A mode for investigation: the program waits meanwhile, including its other threads' calls. All waiting is bounded.
// None of its own errors reaches the program. Called from any thread, with the guard entered; one lock, and only in
// this mode.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nimble/internal/bundle.h"
#include "nimble/internal/call.h"
#include "shim/record/observers/bundle/bundle_writer.h"
#include "shim/record/observers/bundle/content_store.h"
#include "shim/record/observers/bundle/step_watch.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

struct StepSaverOptions {
  std::string folder;
  std::uint64_t limit_bytes = 0;
};

// How long to wait for work in flight.
inline constexpr std::chrono::milliseconds kCapturePatience{10'000};

class StepSaver {
 public:
  StepSaver(StepSaverOptions options, CallContext& context);

  // Before the driver is called. `any_captures`: whether a stream may be capturing.
  void before(const Call& call, bool any_captures) noexcept;
  // After it. `seq`: of the call in the trace. Not for ops that go into a graph that is being captured.
  void after(const Call& call, CUresult result, std::uint64_t seq) noexcept;
  // The trace is complete, as far as it goes: puts a copy into the bundle, and logs the outcome. No further step is
  // saved.
  void finish(const std::string& trace) noexcept;
  // In a forked child: the folder is the parent's.
  void forked() noexcept { folder_.forked(); }

 private:
  struct Live {
    std::uint64_t size = 0;
    MemoryKind memory = MemoryKind::device;
    std::uint32_t birth = 0;  // the number of ops so far
    std::string global;       // a variable's name
    const ImageInfo* image = nullptr;
    std::uint32_t object = kNone;  // in the step being saved
  };
  using LiveMap = std::map<std::uint64_t, Live>;

  // One object of the step being saved.
  struct Object {
    BundleObject facts;
    const ImageInfo* image = nullptr;
    bool touched = false;
    std::string unreadable;            // why its content could not be read
    std::set<std::uint32_t> leads_to;  // objects whose addresses its content may hold
  };

  // The step being saved.
  struct Window {
    explicit Window(std::uint64_t limit_bytes) : store(limit_bytes) {}
    std::uint32_t period = 0, thread = 0;
    CUcontext context = nullptr;
    Bundle bundle;
    ContentStore store;
    std::vector<Object> objects;
    std::vector<const ImageInfo*> images;  // per op of the step
    std::set<std::string> hidden;          // hidden ways in which its kernels or the program may reach memory
  };

  template <class Look>
  void guarded(const Look& look) noexcept;
  void look_before(const Call& call, bool any_captures);
  void look_after(const Call& call, CUresult result, std::uint64_t seq);
  LiveMap::iterator find(std::uint64_t address);
  void forget(const Call& call);
  void allocated(const Call& call);
  void add_globals(const Call& call);
  std::uint64_t signature_of(const Call& call) const;
  void gather_pointers(const Call& call);
  bool begin(const Call& call, std::uint32_t period);
  void take_op(const Call& call, std::uint64_t seq);
  void take_source(const Call& call);
  void take_result(const Call& call);
  bool is_host_memory(std::uint64_t address) const;
  const char* why_not_replayable(const Call& call) const;
  void touch(std::uint64_t address);
  bool settle_all(const Call& call);
  void read_all(const Call& call, std::optional<BundleContent> BundleObject::*which);
  void read(Object& object, CUstream stream, BundleContent& content);
  std::string read_host(std::uint64_t address, std::uint64_t size, Object* leads, ContentStore::Writer& writer);
  bool covers(std::uint64_t address, std::uint64_t size);
  void scan(Object& object, std::span<const std::uint8_t> bytes);
  bool readable(const BundleObject& object, std::string& why) const;
  void end(const Call& call);
  void save();
  // Whether a step like this one is worth another attempt.
  enum class Refusal : std::uint8_t { for_good, this_time };
  void refuse(const std::string& why, Refusal how = Refusal::for_good);
  void give_up(const std::string& why) noexcept;

  const StepSaverOptions options_;
  BundleFolder folder_;
  CallContext& context_;
  std::atomic<bool> off_{false};

  std::mutex finishing_;  // held while the trace is copied; only other calls of finish() wait for it
  std::mutex mutex_;      // guards everything below, and folder_ as long as steps are saved
  DeviceReader reader_;
  StepWatch watch_;
  LiveMap live_;
  std::map<std::uint64_t, StreamRef> streams_;  // by key: all that ops were put on
  std::set<std::string> hidden_;                // the program's hidden ways to reach memory (CallKind::hidden)
  bool textures_ = false;
  bool observed_ = false;
  std::vector<StepWatch::Pointer> pointers_;  // of the current op
  std::vector<std::uint8_t> params_;
  std::unique_ptr<Window> window_;
  int attempts_ = 0;
  std::string why_none_;
  std::string saved_;  // what was
  bool finished_ = false;
};

}  // namespace nimble::shim
