// Audit: now and then a step runs twice, by its graphs and then in the program's order, and the results are compared.
//
// Segment by segment: saves what the segment may write, runs the graph, saves its results, restores the old content,
// and runs the ops again, one by one. So the results of the program's own order stay, whatever the graph did. All of
// this goes into the program's stream without waiting; the comparison comes when the GPU is done, and until then steps
// are submitted in the program's order. Only the second run records the program's events, so waits for the program's
// ops wait for that.
//
// Restoring is only right if nothing else writes to that memory at the time. So a segment is not audited if an op may
// write anything, or a kernel writes memory that the host reaches; nor while other streams have work. Declared or
// observed evidence that a kernel leaves an object alone does not count here: the object is copied, too.
//
// Owns its copies' memory, which it keeps, its events and a stream. Not synchronised: the replayer's lock guards it.
// The step's context must be current.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replayer/bind/object_map.h"
#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"
#include "replayer/stats/counters.h"

namespace nimble {

class Audit {
 public:
  enum class Run : std::uint8_t {
    graphs,    // as always
    audited,   // by graphs and then in the program's order
    in_order,  // in the program's order alone: an audit has not been judged yet
  };

  // Every `every`th step. Nothing: no one has asked for audits; then steps 1, 2, 10, 100 and so on, since what is wrong
  // often shows soon, and no segment that writes memory of the host.
  Audit(const Schedule& schedule, const OpMatch& live, const ObjectMap& objects, const DriverApi& driver,
        Counters& counters, std::optional<std::uint32_t> every);

  // A step begins: how it is to run. `elsewhere`: how many ops other streams have got so far. `bound`: it could run as
  // a graph.
  Run begin_step(std::uint64_t elsewhere, bool bound);

  // Before the segment's graph is launched. False if it is not audited; then nothing was done.
  bool save(std::uint32_t segment, CUstream stream, std::uint64_t elsewhere);
  // The event that the graph records instead of the program's.
  CUevent stand_in() const { return stand_in_; }
  // The graph has been launched: saves and undoes its results. If that fails the graph's results stay, unless `undone`
  // says that some of them are gone.
  CUresult undo(CUstream stream, bool& undone);
  // The ops have been submitted again.
  CUresult keep(CUstream stream);

  // Whether an audit is waiting to be judged: other streams must wait for done() before they go on, since memory may
  // yet be restored.
  bool pending() const { return !pending_.empty(); }
  CUevent done() const { return done_; }

  // The last save was not audited after all.
  void drop() { pending_.pop_back(); }

  // Compares, if the GPU is done. One line on the differences; empty if there are none, or it is too early.
  std::string judge();

  // The context is gone.
  void abandon();

 private:
  // A range to copy.
  struct Range {
    std::uint64_t address = 0, bytes = 0;
    std::uint32_t object = kNone;
  };
  // What an op may have written.
  struct Touch {
    std::uint32_t op = 0;
    std::uint64_t address = 0, bytes = 0;
    bool believed = false;  // it was assumed only to read
  };
  struct Copies {
    CUdeviceptr before = 0, by_graph = 0;  // the former holds the second run's results in the end
    std::uint64_t bytes = 0;
  };
  struct Audited {
    std::uint32_t segment = 0;
    std::vector<Range> ranges;
    std::vector<Touch> touches;
  };

  void plan_next();
  static void merge(std::vector<Range>& ranges);
  const char* collect(std::uint32_t segment, Audited& found) const;
  const char* why_not(std::uint32_t segment) const;
  bool provide(Copies& copies, std::uint64_t bytes);
  CUresult copy_out(const Audited& audited, CUdeviceptr to, CUstream stream) const;
  // Differing bytes, from the first to the last, and their number.
  struct Difference {
    const Audited* audited = nullptr;
    Range range;
    std::uint64_t count = 0;
    std::vector<std::uint32_t> writers;  // ascending; if there are none, those assumed only to read
    bool believed = false;
  };
  // False if the copies could not be read.
  bool compare(const Audited& audited, std::vector<Difference>& found);
  void blame(Difference& difference) const;
  std::string describe(const Difference& difference) const;

  const Schedule& schedule_;
  const OpMatch& live_;
  const ObjectMap& objects_;
  const DriverApi& driver_;
  Counters& counters_;
  const std::optional<std::uint32_t> every_;
  std::uint64_t steps_ = 0, next_ = 0;  // so far; at which one is due
  bool due_ = false;
  std::uint64_t elsewhere_ = 0;
  std::vector<Copies> copies_;  // per segment
  std::vector<Audited> pending_;
  CUevent stand_in_ = nullptr, done_ = nullptr;
  CUstream reading_ = nullptr;
  std::vector<std::uint8_t> one_, other_;
};

}  // namespace nimble
