// Writes a trace file as docs/reference/formats.md says: records in, lines of JSON out.
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

#include "analyzer/input/trace_store.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/trace.h"
#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

class TraceWriter {
 public:
  // Looks up what writers ask the driver for. Called before there is one, from a thread of the program's: a writer's
  // own must not wait for the dynamic loader, whose lock a thread may hold that waits for the writer.
  static void find_driver();

  // Creates the file, or says in the log why it cannot be. Its times count from `epoch_ns`. It has a name of its own
  // until it is closed (include/nimble/internal/files/own_file.h), and never more than `limit_bytes`, if that is not
  // 0.
  TraceWriter(const std::string& path, std::uint64_t epoch_ns, std::uint64_t limit_bytes = 0);
  // Whether that may wait for another process: for who reads a pipe.
  static bool may_wait(const std::string& path) { return is_no_file(path); }
  // Writes into memory instead, and says nothing.
  TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Writes what comes first. Asks the driver.
  void begin();

  bool good() const { return file_.is_open() || store_; }
  // False where the limit leaves no room for it. Then nothing of it is written, and no call that came later may be.
  bool write(const Record& record);
  void write(const DeviceTime& time);
  // Hands what was written to the operating system. False once that has failed: then the file ends with a whole line
  // before that, and close() ends it properly if it can be.
  bool flush();
  // Ends the file properly, with what was recorded of how complete it is, and gives it its name. What is written after
  // that goes before the end, once close() is called again: so the file is whole after each. Stays open, and locked, as
  // long as the writer lives. False where nothing more can be written. `ending`: why the recording ends, where
  // the program goes on.
  bool close(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending);
  // Of whole lines in the file.
  std::uint64_t bytes() const { return size_; }
  // Where the file is.
  const std::string& path() const { return file_.location(); }
  // To read by what has been written so far. Nothing where it is no file.
  GrowingFile reading() const { return file_.reading(); }
  // Nothing has been written, nor will be: there is to be no file.
  void discard() { file_.discard(); }
  // In a forked child: closes its copy of the file, which keeps the file locked.
  void let_go() noexcept;

 private:
  static constexpr std::uint64_t kForEnd = std::uint64_t{1} << 13;  // kept free below the limit for the last lines

  // An op whose time is still to come.
  struct Awaited {
    std::uint64_t seq = 0;
    std::uint32_t stream = 0, function = kNone;
    const char* symbol = "";
    CallKind kind = CallKind::opaque;
  };

  void header();
  // Whether the limit leaves so much room behind what is written.
  bool fits(std::uint64_t room) const;
  // For a file that could not be written to its end, and may end in the middle of a line: cuts off at least `room`
  // bytes, which can be written again, and leaves whole lines. False where no whole line but its first ones would be
  // left.
  bool cut_back(std::uint64_t room);
  void put(const Record& record);
  bool leave_unended(const std::string& why);
  bool write_late();
  void say_written(const std::string& why, bool is_wanted, int error);
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

  OwnFile file_;
  const std::uint64_t limit_;
  std::uint64_t size_ = 0;         // of the whole lines in the file, but for its end
  std::uint64_t header_size_ = 0;  // without which it is no trace
  std::string why_full_;
  std::shared_ptr<TraceStore> store_;  // then there is no file; let go of once it is full
  bool ended_ = false;
  const std::uint64_t epoch_ns_;
  std::string program_;        // its command line
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
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::unordered_map<CUevent, std::uint32_t> events_;
  std::unordered_map<CUcontext, std::uint32_t> contexts_;
  std::vector<std::string> names_;                       // of functions by the file's id, for people, escaped
  std::vector<double> busy_until_us_;                    // per stream: bars of one track must not overlap
  std::unordered_map<std::uint64_t, Awaited> awaited_;   // by ticket
  std::unordered_map<std::uint64_t, DeviceTime> early_;  // by ticket: times that came before their op
  std::uint32_t next_stream_ = 0, next_event_ = 0, next_graph_ = 0;
};

}  // namespace nimble::shim
