// What is in order, by its definition, for tests of what Nimble knows of it; and the streams that they are about.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "replayer/onlookers/stream_clocks.h"

namespace nimble::order {

using Stream = StreamClocks::Stream;

inline Stream stream(std::uint64_t key, StreamKind kind = StreamKind::non_blocking, std::uint64_t context = 1) {
  return {{reinterpret_cast<CUstream>(key), key}, kind, context};
}
inline CUevent event(std::uint64_t number) { return reinterpret_cast<CUevent>(0x100 + number * 8); }

inline const Stream kA = stream(0x10), kB = stream(0x20), kC = stream(0x30);
inline const Stream kLegacy = stream(0x1001, StreamKind::legacy), kBlocking = stream(0x40, StreamKind::blocking),
                    kThreads = stream(0x1002, StreamKind::per_thread),
                    kOtherContext = stream(0x50, StreamKind::blocking, /*context=*/2);

// What is in order, by its definition: of each stream the ops that are before whatever comes next.
class Truth {
 public:
  using Ops = std::set<int>;

  Ops before(const Stream& on) const {
    Ops all = of(on.ref.key);
    const auto keeps_order = [](StreamKind kind) {
      return kind == StreamKind::blocking || kind == StreamKind::per_thread;
    };
    for (const auto& [key, other] : streams_) {
      const bool joins =
          other.stream.context == on.context && ((on.kind == StreamKind::legacy && keeps_order(other.stream.kind)) ||
                                                 (keeps_order(on.kind) && other.stream.kind == StreamKind::legacy));
      if (joins) all.insert(other.ops.begin(), other.ops.end());
    }
    all.insert(done.begin(), done.end());
    return all;
  }
  void op(int number, const Stream& on) {
    Ops all = before(on);
    all.insert(number);
    streams_[on.ref.key] = {on, std::move(all)};
  }
  // The op is before what comes on the stream, by something that is not reported.
  void joins(int number, const Stream& on) { streams_[on.ref.key].ops.insert(number); }
  void record(CUevent what, const Stream& on) {
    events_[what] = before(on);
    streams_[on.ref.key] = {on, before(on)};
  }
  void wait(const Stream& on, CUevent what) {
    Ops all = of(on.ref.key);
    if (const auto found = events_.find(what); found != events_.end())
      all.insert(found->second.begin(), found->second.end());
    streams_[on.ref.key] = {on, std::move(all)};
  }
  void host_waits(const Stream& for_it) {
    const Ops all = of(for_it.ref.key);
    done.insert(all.begin(), all.end());
  }
  void host_waits(CUevent what) {
    if (const auto found = events_.find(what); found != events_.end())
      done.insert(found->second.begin(), found->second.end());
  }

  Ops done;

 private:
  struct OfStream {
    Stream stream;
    Ops ops;
  };
  Ops of(std::uint64_t key) const {
    const auto found = streams_.find(key);
    return found == streams_.end() ? Ops{} : found->second.ops;
  }
  std::map<std::uint64_t, OfStream> streams_;
  std::map<CUevent, Ops> events_;
};

}  // namespace nimble::order
