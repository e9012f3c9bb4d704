// Writes a trace file as docs/reference/formats.md says: records in, lines of JSON out.
//
// Owns where the lines go (trace_output.h), the ids that calls name things by (trace_definitions.h), and the bars of
// the stream tracks (stream_tracks.h). Used by one thread, the record queue's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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
  // Looks up the driver functions that writers use. Called before there is a writer, from a program thread: the
  // writer's own must not wait for the dynamic loader, whose lock may be held by a thread that waits for the writer.
  static void find_driver();

  // Creates the file, or logs why it cannot. Its times count from `epoch_ns`. Never exceeds `limit_bytes`, if that is
  // not 0. `is_read`: while it is written.
  TraceWriter(const std::string& path, std::uint64_t epoch_ns, std::uint64_t limit_bytes = 0, bool is_read = false);
  // Whether it is a pipe, which can be opened once it has a reader.
  static bool needs_reader(const std::string& path);
  // Writes into memory instead, and logs nothing.
  TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // By whom files are opened from now on: it runs what it is given. Without it, by the thread that uses the writer.
  void open_by(std::function<void(const std::function<void()>&)> opener) { output_.open_by(std::move(opener)); }

  // Writes the header. Asks the driver.
  void begin();

  bool good() const { return output_.good(); }
  // False if the limit leaves no room for it. Then neither it nor any later call is written.
  bool write(const Record& record);
  void write(const DeviceTime& time);
  // Writes pending lines to the file. False once that has failed: then the file ends with a whole line, and close()
  // ends it properly if possible.
  bool flush();
  // Ends the file properly, with its coverage, and gives it its name. Later writes go before the end, once close() is
  // called again: so the file is complete after each. Stays open, and locked, as long as the writer lives. False if
  // nothing more can be written. `ending`: why the recording ends, if the program goes on.
  bool close(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending);
  // The same after begin() or write() has thrown: with what could be written.
  bool cut_short(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending);
  // The size of the whole lines in the file.
  std::uint64_t bytes() const { return output_.bytes(); }
  // Where the file is.
  const std::string& path() const { return output_.path(); }
  // For reading what has been written so far. Not open if it is not a regular file.
  GrowingFile reading() const { return output_.reading(); }
  // Nothing has been written, nor will be: removes the file.
  void discard() { output_.discard(); }
  // In a forked child: closes its copy of the file, which keeps the file locked.
  void let_go() noexcept { output_.let_go(); }

 private:
  template <class Append>
  void append_whole(Append append);
  StreamTracks::Op define(const Record& record);
  void put(const Record& record);
  void write_coverage(const Coverage& coverage);
  void write_probe(const ProbeTotals& totals);

  const std::string program_;  // its command line
  TraceOutput output_;
  TraceDefinitions definitions_;
  StreamTracks tracks_;
  std::string args_;  // the current call's arguments
};

}  // namespace nimble::shim
