// Writes a trace file as docs/reference/formats.md says: records in, lines of JSON out.
//
// Owns where the lines go (trace_output.h), the ids that calls name things by (trace_definitions.h), and the bars of
// the stream tracks (stream_tracks.h). Used by one thread, the record queue's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/growing_file.h"
#include "shim/record/trace/record_queue.h"
#include "shim/record/trace/stream_tracks.h"
#include "shim/record/trace/trace_definitions.h"
#include "shim/record/trace/trace_output.h"

namespace nimble::shim {

class TraceWriter {
 public:
  // Looks up what writers ask the driver for. Called before there is one, from a thread of the program's: a writer's
  // own must not wait for the dynamic loader, whose lock a thread may hold that waits for the writer.
  static void find_driver();

  // Creates the file, or says in the log why it cannot be. Its times count from `epoch_ns`. It gets never more than
  // `limit_bytes`, if that is not 0.
  TraceWriter(const std::string& path, std::uint64_t epoch_ns, std::uint64_t limit_bytes = 0);
  // Whether that may wait for another process: for who reads a pipe.
  static bool may_wait(const std::string& path) { return is_no_file(path); }
  // Writes into memory instead, and says nothing.
  TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Writes what comes first. Asks the driver.
  void begin();

  bool good() const { return output_.good(); }
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
  std::uint64_t bytes() const { return output_.bytes(); }
  // Where the file is.
  const std::string& path() const { return output_.path(); }
  // To read by what has been written so far. Nothing where it is no file.
  GrowingFile reading() const { return output_.reading(); }
  // Nothing has been written, nor will be: there is to be no file.
  void discard() { output_.discard(); }
  // In a forked child: closes its copy of the file, which keeps the file locked.
  void let_go() noexcept { output_.let_go(); }

 private:
  StreamTracks::Op define(const Record& record);
  void put(const Record& record);
  void write_coverage(const Coverage& coverage);
  void write_probe(const ProbeTotals& totals);

  const std::string program_;  // its command line
  TraceOutput output_;
  TraceDefinitions definitions_;
  StreamTracks tracks_;
  std::string args_;  // the arguments of the call at hand
};

}  // namespace nimble::shim
