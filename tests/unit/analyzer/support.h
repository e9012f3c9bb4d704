// What the analyzer's tests share: traces written line by line, files that vanish, random graphs, and slow references
// that are plainly right.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/pipeline.h"

namespace nimble::analyzer::test {

// A file that this process alone can read, by a path like any other. It lies in memory, since some tests make
// thousands.
class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : file_(::memfd_create("test", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(file_)) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() { ::close(file_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int file_;
  std::string path_;
};

// Believes all evidence: that of most of these tests' kernels is their signature.
inline AnalysisOptions believing() {
  AnalysisOptions options;
  options.trust = Evidence::observed;
  return options;
}

// Eight bytes of a parameter buffer, or four, in hexadecimal.
inline std::string hex(std::uint64_t value, int bytes = 8) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(value >> (8 * i) & 0xff));
    text += digits;
  }
  return text;
}

// The text of a trace. Calls get ascending `seq`.
class TraceText {
 public:
  TraceText() {
    event("nimble.trace", R"("version":2,"nimble":"test","program":"test","device":"none","driver":13000)");
  }

  void event(const std::string& name, const std::string& args) {
    line(R"({"ph":"M","pid":1,"tid":0,"name":")" + name + R"(","args":{)" + args + "}}");
  }
  int image(bool self_contained) {
    event("nimble.image",
          "\"id\":" + std::to_string(images_) + ",\"self_contained\":" + (self_contained ? "true" : "false"));
    return images_++;
  }
  // `params` as in the file: "[[0,8],[8,8]]" or "null".
  int function(const std::string& name, const std::string& params, int image = 0, const std::string& more = "") {
    event("nimble.function", "\"id\":" + std::to_string(functions_) + ",\"name\":\"" + name +
                                 "\",\"image\":" + std::to_string(image) + ",\"params\":" + params + more);
    return functions_++;
  }
  int stream(const std::string& kind = "non_blocking", int context = 0) {
    event("nimble.stream", "\"id\":" + std::to_string(streams_) + ",\"context\":" + std::to_string(context) +
                               ",\"kind\":\"" + kind + "\"");
    return streams_++;
  }
  void call(const std::string& kind, const std::string& args, int thread = 1) {
    line("{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(thread) +
         ",\"ts\":" + std::to_string(static_cast<double>(seq_) + passed_us_) + ",\"dur\":" + std::to_string(call_us_) +
         ",\"name\":\"" + kind + "\",\"cat\":\"" + kind + "\",\"args\":{\"seq\":" + std::to_string(seq_) +
         ",\"call\":\"" + kind + "\"" + (args.empty() ? "" : "," + args) + "}}");
    ++seq_;
    passed_us_ += std::exchange(call_us_, 1) - 1;
  }

  // The next call takes so long, instead of 1 us.
  void takes(double us) { call_us_ = us; }

  // The program does something of its own before its next call. A call takes 1 us, and comes right after the last one.
  void pass(double us) { passed_us_ += us; }

  // A graph of the program's, by its lists as in the file; `why` not empty: its nodes could not be read.
  int graph(const std::string& accesses, const std::string& kernels = "[]", const std::string& why = "") {
    event("nimble.graph", "\"id\":" + std::to_string(graphs_) + ",\"known\":" + (why.empty() ? "true" : "false") +
                              ",\"why\":\"" + why + "\"");
    event("nimble.graph_nodes", "\"graph\":" + std::to_string(graphs_) + ",\"accesses\":" + accesses);
    event("nimble.graph_nodes", "\"graph\":" + std::to_string(graphs_) + ",\"kernels\":" + kernels);
    return graphs_++;
  }
  void alloc(std::uint64_t address, std::uint64_t size, const std::string& memory = "device") {
    call("alloc", fields({{"addr", address}, {"size", size}}) + ",\"memory\":\"" + memory + "\"");
  }
  void free(std::uint64_t address) { call("free", fields({{"addr", address}})); }
  void alloc_async(std::uint64_t address, std::uint64_t size, int on = 0) {
    call("alloc_async", fields({{"stream", on}, {"addr", address}, {"size", size}}));
  }
  void free_async(std::uint64_t address, int on = 0) {
    call("free_async", fields({{"stream", on}, {"addr", address}}));
  }
  void launch(int function, const std::string& params, int on = 0, const std::string& more = "", int grid = 8) {
    call("launch", fields({{"stream", on}, {"fn", function}}) + ",\"grid\":[" + std::to_string(grid) +
                       R"(,1,1],"block":[128,1,1],"params":")" + params + "\"" + more);
  }
  void copy(std::uint64_t dst, std::uint64_t src, std::uint64_t width, int on = 0, const std::string& more = "") {
    call("copy", fields({{"stream", on}, {"dst", dst}, {"src", src}, {"width", width}}) + more);
  }
  void set(std::uint64_t dst, std::uint64_t width, int on = 0, const std::string& more = "") {
    call("set", fields({{"stream", on}, {"dst", dst}, {"width", width}}) + more);
  }
  void record(int event, int on = 0) { call("event_record", fields({{"stream", on}, {"event", event}})); }
  void wait(int event, int on = 0) { call("event_wait", fields({{"stream", on}, {"event", event}})); }
  void synchronize(int on = 0) { call("stream_synchronize", fields({{"stream", on}})); }

  void line(const std::string& text) { lines_.push_back(text); }

  std::string str(bool closed = true) const {
    std::string text = "[\n";
    for (const std::string& each : lines_) text += each + ",\n";
    if (closed) text += "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"nimble.end\",\"args\":{\"dropped\":0}}\n]\n";
    return text;
  }

  TraceFile read() const {
    TempFile file(str());
    return read_trace(file.path());
  }
  Analysis analyze(const AnalysisOptions& options = believing()) const { return analyzer::analyze(read(), options); }

 private:
  static std::string fields(const std::vector<std::pair<const char*, std::uint64_t>>& values) {
    std::string text;
    for (const auto& [name, value] : values)
      text += (text.empty() ? "\"" : ",\"") + std::string(name) + "\":" + std::to_string(value);
    return text;
  }

  std::vector<std::string> lines_;
  int images_ = 0, functions_ = 0, streams_ = 0, graphs_ = 0;
  std::uint64_t seq_ = 0;
  double passed_us_ = 0, call_us_ = 1;
};

using Random = std::mt19937_64;

inline std::uint32_t below(Random& random, std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }

// Every edge with the given probability.
inline Dag random_dag(Random& random, std::uint32_t nodes, double probability) {
  std::vector<Dag::Edge> edges;
  for (std::uint32_t to = 0; to < nodes; ++to)
    for (std::uint32_t from = 0; from < to; ++from)
      if (static_cast<double>(random() % 1000000) < probability * 1e6) edges.push_back({from, to});
  return Dag(nodes, std::move(edges));
}

// reached[a][b]: there is a path from a to b.
inline std::vector<std::vector<bool>> closure(const Dag& dag) {
  std::uint32_t n = dag.nodes();
  std::vector<std::vector<bool>> reached(n, std::vector<bool>(n, false));
  for (std::uint32_t from = n; from-- > 0;)
    for (std::uint32_t to : dag.successors(from)) {
      reached[from][to] = true;
      for (std::uint32_t beyond = 0; beyond < n; ++beyond)
        if (reached[to][beyond]) reached[from][beyond] = true;
    }
  return reached;
}

}  // namespace nimble::analyzer::test
