// Writes a trace file as docs/FORMAT.md says: records in, lines of JSON out.
//
// Used by one thread, the record queue's. Gives ids to functions, images, streams and events as they first appear.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/record_queue.h"

namespace nimble::shim {

class TraceWriter {
 public:
  // Creates the file, or says in the log why it cannot be.
  explicit TraceWriter(const std::string& path);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  bool good() const { return file_ >= 0; }
  void write(const Record& record);
  // Hands what was written to the operating system. False once that has failed.
  bool flush();
  // Ends the file properly. What is written after that goes before the end, once close() is called again: so the file
  // is whole after each. Stays open, and locked, as long as the writer lives. False where nothing more can be written.
  bool close();
  // In a forked child: closes its copy of the file, which keeps the file locked.
  void let_go() noexcept;

 private:
  void header();
  void line(std::string_view event);
  void define_thread(std::uint32_t thread);
  std::uint32_t define_stream(const Record& record);
  std::uint32_t define_event(CUevent event);
  std::uint32_t define_function(const FunctionInfo& function);
  void define_image(const ImageInfo& image);
  void arguments(const Record& record);
  void stream_bar(const Record& record, std::uint32_t stream, std::string_view name);

  const std::string path_;
  int file_ = -1;
  bool ended_ = false;
  std::uint64_t epoch_ns_ = 0;
  std::string out_;                                 // lines not yet written
  std::string args_;                                // the arguments of the call at hand
  std::vector<bool> threads_, functions_, images_;  // defined already, by id
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::unordered_map<CUevent, std::uint32_t> events_;
  std::unordered_map<std::uint64_t, std::uint32_t> contexts_;
  std::vector<std::string> names_;     // of functions, for people, escaped
  std::vector<double> busy_until_us_;  // per stream: bars of one track must not overlap
  std::uint32_t next_stream_ = 0, next_event_ = 0;
};

}  // namespace nimble::shim
