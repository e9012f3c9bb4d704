// See report.h. Also the functions of simcuda.h that ask for counters.
#include "tests/simcuda/observe/report.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/driver/generated_exports.h"
#include "tests/simcuda/memory/copy.h"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

Driver* reported;  // null: no report
pid_t reporting_process;
std::map<std::string, std::uint64_t>& unimplemented() {
  static auto& counts = *new std::map<std::string, std::uint64_t>();
  return counts;
}

void count_unimplemented(const char* what) {
  ++driver().counters.unimplemented;
  if (++unimplemented()[what] == 1 || driver().options.log) {
    std::fprintf(stderr, "simcuda: %s is not implemented\n", what);
  }
}

std::string quoted(const char* text) {
  std::string out = "\"";
  for (; *text != '\0'; ++text) {
    const unsigned char c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *text;
    } else if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += *text;
    }
  }
  return out + '"';
}

std::string path_for_process(const std::string& pattern) {
  std::string path = pattern;
  if (const std::size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

// One line for each executed op, in the order of execution; `op` counts in program order, `call` is the driver call.
void write_accesses(std::FILE* file, const Tracking& tracking) {
  const auto write_ranges = [&](const char* key, const std::vector<SimcudaRange>& ranges) {
    std::fprintf(file, ", \"%s\": [", key);
    const char* separator = "";
    for (const SimcudaRange& range : ranges) {
      std::fprintf(file, "%s[%" PRIu64 ", %" PRIu64 "]", separator, range.begin, range.end);
      separator = ", ";
    }
    std::fprintf(file, "]");
  };
  std::fprintf(file, ",\n  \"accesses\": [");
  const char* separator = "\n";
  for (const Tracking::Recorded& one : tracking.recorded) {
    std::fprintf(file,
                 "%s    {\"op\": %" PRIu64 ", \"name\": %s, \"stream\": %" PRIu64 ", \"exact\": %s, \"call\": %" PRIu64
                 ", \"symbol\": \"%s\", \"thread\": %" PRIu64,
                 separator, one.op, quoted(one.name).c_str(), one.stream, one.ranges.exact ? "true" : "false",
                 one.caller.call, one.caller.symbol, one.caller.thread);
    write_ranges("reads", one.ranges.reads);
    write_ranges("writes", one.ranges.writes);
    std::fprintf(file, "}");
    separator = ",\n";
  }
  std::fprintf(file, "%s]", tracking.recorded.empty() ? "" : "\n  ");
}

void write_report(std::FILE* file, const Driver& d) {
  const Counters& c = d.counters;
  std::fprintf(file,
               "{\n  \"simulated\": {\"host_us\": %.3f, \"host_submit_us\": %.3f, \"gpu_busy_us\": %.3f, "
               "\"gpu_end_us\": %.3f},\n",
               d.clock.host_us(), d.clock.submit_us(), d.clock.busy_us(), d.clock.device_end_us());
  std::fprintf(file,
               "  \"submissions\": %" PRIu64 ",\n  \"graph_launches\": %" PRIu64 ",\n  \"graph_nodes\": %" PRIu64
               ",\n  \"kernels\": %" PRIu64 ",\n  \"copies\": %" PRIu64 ",\n  \"sets\": %" PRIu64
               ",\n  \"pending\": %" PRIu64 ",\n",
               c.submissions, c.graph_launches, c.graph_nodes, c.kernels, c.copies, c.sets, d.engine.pending());
  std::map<std::string, std::uint64_t> calls;
  for (const Symbol* symbol = Symbol::first; symbol != nullptr; symbol = symbol->next) {
    if (symbol->calls != 0) calls[symbol->name] = symbol->calls;
  }
  const auto write_counts = [&](const char* key, const std::map<std::string, std::uint64_t>& counts) {
    std::fprintf(file, "  \"%s\": {", key);
    const char* separator = "\n";
    for (const auto& [name, count] : counts) {
      std::fprintf(file, "%s    %s: %" PRIu64, separator, quoted(name.c_str()).c_str(), count);
      separator = ",\n";
    }
    std::fprintf(file, counts.empty() ? "},\n" : "\n  },\n");
  };
  write_counts("calls", calls);
  write_counts("unimplemented", unimplemented());
  std::fprintf(file, "  \"races\": [");
  const char* separator = "\n";
  for (const SimcudaRace& race : d.tracking.found_races) {
    std::fprintf(
        file,
        "%s    {\"first\": {\"op\": %" PRIu64 ", \"name\": %s, \"access\": \"%s\"}, \"second\": {\"op\": %" PRIu64
        ", \"name\": %s, \"access\": \"%s\"}, \"begin\": %" PRIu64 ", \"end\": %" PRIu64 "}",
        separator, race.first_op, quoted(race.first_name).c_str(), race.first_writes ? "write" : "read", race.second_op,
        quoted(race.second_name).c_str(), race.second_writes ? "write" : "read", race.range.begin, race.range.end);
    separator = ",\n";
  }
  std::fprintf(file, "%s],\n  \"illegal_accesses\": [", d.tracking.found_races.empty() ? "" : "\n  ");
  separator = "\n";
  for (const Tracking::Illegal& access : d.tracking.illegal_accesses) {
    std::fprintf(file, "%s    {\"op\": %" PRIu64 ", \"name\": %s, \"address\": %" PRIu64 ", \"access\": \"%s\"}",
                 separator, access.op, quoted(access.name).c_str(), access.address, access.write ? "write" : "read");
    separator = ",\n";
  }
  std::fprintf(file, "%s]", d.tracking.illegal_accesses.empty() ? "" : "\n  ");
  if (d.tracking.accesses) write_accesses(file, d.tracking);
  std::fprintf(file, "\n}\n");
}

__attribute__((destructor)) void report_now() {
  if (reported == nullptr || getpid() != reporting_process) return;
  const std::string path = path_for_process(reported->options.report);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "simcuda: cannot write the report %s: %s\n", path.c_str(), std::strerror(errno));
    return;
  }
  // Threads that the program has left running may still be in a call.
  const std::lock_guard lock(reported->mutex);
  write_report(file, *reported);
  std::fclose(file);
}

}  // namespace

void report_at_exit(Driver& d) {
  reporting_process = getpid();
  if (!d.options.report.empty()) reported = &d;
}

void log_call(const char* symbol, CUresult result) {
  const char* name = result_name(result);
  std::fprintf(stderr, "simcuda: %s: %s\n", symbol, name != nullptr ? name : std::to_string(result).c_str());
}

CUresult not_supported(const char* what) {
  count_unimplemented(what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" {

// Called from generated code, for entry points that are declared and do nothing.
int simcuda_not_implemented(const char* name) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  count_unimplemented(name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT double simcuda_host_time_us(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().clock.host_us();
}
SIM_EXPORT double simcuda_gpu_busy_us(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().clock.busy_us();
}
SIM_EXPORT double simcuda_gpu_end_us(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().clock.device_end_us();
}
SIM_EXPORT uint64_t simcuda_submissions(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().counters.submissions;
}
SIM_EXPORT uint64_t simcuda_graph_launches(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().counters.graph_launches;
}
SIM_EXPORT uint64_t simcuda_pending(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().engine.pending();
}
SIM_EXPORT uint64_t simcuda_calls(const char* name) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  const Symbol* symbol = name != nullptr ? Symbol::find(name) : nullptr;
  return symbol != nullptr ? symbol->calls : 0;
}
SIM_EXPORT uint64_t simcuda_unimplemented_calls(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().counters.unimplemented;
}
SIM_EXPORT int simcuda_implements(const char* name) { return name != nullptr && Symbol::find(name) != nullptr; }

SIM_EXPORT void simcuda_reset_counters(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  Driver& d = driver();
  d.counters = {};
  d.clock.reset();
  d.tracking.reset();
  for (Symbol* symbol = Symbol::first; symbol != nullptr; symbol = symbol->next) {
    // An injection that is still to come stays as far away as it is.
    if (symbol->fail_at > symbol->calls) symbol->fail_at -= symbol->calls;
    symbol->calls = 0;
  }
}

SIM_EXPORT void simcuda_set_seed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  driver().engine.set_seed(seed);
}
SIM_EXPORT void simcuda_track(int accesses, int races) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  driver().tracking.accesses = accesses != 0;
  driver().tracking.races = races != 0;
}

SIM_EXPORT size_t simcuda_access_count(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().tracking.recorded.size();
}
SIM_EXPORT int simcuda_access(size_t index, SimcudaAccess* out) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  const auto& all = driver().tracking.recorded;
  if (out == nullptr || index >= all.size()) return -1;
  const Tracking::Recorded& one = all[index];
  *out = {one.op,
          one.name,
          one.stream,
          one.ranges.exact,
          one.ranges.reads.data(),
          one.ranges.reads.size(),
          one.ranges.writes.data(),
          one.ranges.writes.size(),
          one.caller.call,
          one.caller.symbol,
          one.caller.thread};
  return 0;
}
SIM_EXPORT size_t simcuda_race_count(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().tracking.found_races.size();
}
SIM_EXPORT int simcuda_race(size_t index, SimcudaRace* out) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  const auto& all = driver().tracking.found_races;
  if (out == nullptr || index >= all.size()) return -1;
  *out = all[index];
  return 0;
}
SIM_EXPORT size_t simcuda_illegal_access_count(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().tracking.illegal_accesses.size();
}
}
