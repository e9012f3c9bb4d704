// Writes a trace file as docs/FORMAT.md says: records in, lines of JSON out.
//
// Used by one thread, the record queue's. Gives ids to functions, images, streams and events as they first appear.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nimble/trace.h"
#include "shim/record_queue.h"
#include "shim/trace_store.h"

namespace nimble::shim {

class TraceWriter {
 public:
  // Looks up what writers ask the driver for. Called before there is one, from a thread of the program's: a writer's
  // own must not wait for the dynamic loader, whose lock a thread may hold that waits for the writer.
  static void find_driver();

  // Creates the file, or says in the log why it cannot be. Its times count from `epoch_ns`.
  TraceWriter(const std::string& path, std::uint64_t epoch_ns);
  // Writes into memory instead, and says nothing.
  TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  bool good() const { return file_ >= 0 || store_; }
  void write(const Record& record);
  void write(const DeviceTime& time);
  // Hands what was written to the operating system. False once that has failed.
  bool flush();
  // Ends the file properly, with what was recorded of how complete it is. What is written after that goes before the
  // end, once close() is called again: so the file is whole after each. Stays open, and locked, as long as the writer
  // lives. False where nothing more can be written.
  bool close(const Coverage& coverage, const std::optional<ProbeTotals>& probe);
  // In a forked child: closes its copy of the file, which keeps the file locked.
  void let_go() noexcept;

 private:
  // An op whose time is still to come.
  struct Awaited {
    std::uint64_t seq = 0;
    std::uint32_t stream = 0, function = kNone;
    const char* symbol = "";
    CallKind kind = CallKind::opaque;
  };

  void header();
  void line(std::string_view event);
  void define_thread(std::uint32_t thread);
  std::uint32_t define_stream(const Record& record);
  std::uint32_t define_event(CUevent event);
  std::uint32_t define_function(const FunctionInfo& function);
  std::uint32_t define_image(const ImageInfo& image);
  std::uint32_t define_context(CUcontext context);
  // Writes the graph down once, and empties it.
  std::uint32_t define_graph(GraphInfo& graph);
  void forget_context(CUcontext context);
  void arguments(const Record& record);
  double microseconds(std::uint64_t ns) const;
  void device_bar(const Awaited& op, std::uint64_t begin_ns, std::uint64_t end_ns);
  void write_coverage(const Coverage& coverage);
  void write_probe(const ProbeTotals& totals);

  const std::string path_;
  int file_ = -1;
  std::shared_ptr<TraceStore> store_;  // then there is no file; let go of once it is full
  bool ended_ = false;
  const std::uint64_t epoch_ns_;
  std::string out_;            // lines not yet written
  std::string args_;           // the arguments of the call at hand
  std::vector<bool> threads_;  // defined already, by id
  struct Stream {
    std::uint32_t id = 0;
    CUcontext context = nullptr;
  };
  // The file's own ids, in the order of first use: the shim's tables number what the program never launches, too.
  std::unordered_map<const FunctionInfo*, std::uint32_t> functions_;
  std::unordered_map<std::string, std::uint32_t>
      known_functions_;  // of images that are known, by what is written of them
  std::unordered_map<const ImageInfo*, std::uint32_t> images_;
  std::unordered_map<const GraphInfo*, std::uint32_t> graphs_;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::unordered_map<CUevent, std::uint32_t> events_;
  std::unordered_map<CUcontext, std::uint32_t> contexts_;
  std::vector<std::string> names_;                       // of functions by the file's id, for people, escaped
  std::vector<double> busy_until_us_;                    // per stream: bars of one track must not overlap
  std::unordered_map<std::uint64_t, Awaited> awaited_;   // by ticket
  std::unordered_map<std::uint64_t, DeviceTime> early_;  // by ticket: times that came before their op
  std::uint32_t next_stream_ = 0, next_event_ = 0;
};

}  // namespace nimble::shim
