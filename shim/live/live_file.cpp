#include "shim/live/live_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/process/own_thread.h"
#include "shim/driver/guard.h"
#include "shim/process/log.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostText = 1000;  // of a command line or a reason
constexpr std::size_t kMostCommandLine = std::size_t{64} << 20;

const char* name(SinkPhase phase) {
  switch (phase) {
    case SinkPhase::idle:
      return "idle";
    case SinkPhase::recording:
      return "recording";
    case SinkPhase::analyzing:
      return "analyzing";
    case SinkPhase::searching:
      return "searching";
    case SinkPhase::binding:
      return "binding";
    case SinkPhase::replaying:
      return "replaying";
    case SinkPhase::aside:
      return "aside";
  }
  return "";
}

std::string command_line() {
  std::string text;
  read_quiet("/proc/self/cmdline", kMostCommandLine, text);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text.substr(0, kMostText);
}

}  // namespace

void LiveFile::open(const std::string& path, std::string mode) {
  const auto refuse = [&](const std::string& why) {
    file_.close();
    log(LogLevel::warning, "NIMBLE_LIVE: " + path + " " + why + ": it is not kept");
  };
  FileFacts found;
  if (const char* const why = why_not_replaced(path, FileKind::live, found)) return refuse(why);
  if (const int error = file_.open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK))
    return refuse(std::string("cannot be written: ") + std::strerror(error));
  if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0)
    return refuse("is kept by another process (%p in a name is its id)");
  ::fchmod(file_.number(), 0600);
  if (::ftruncate(file_.number(), 0) != 0 && errno != EINVAL)
    return refuse(std::string("cannot be written: ") + std::strerror(errno));
  mode_ = std::move(mode);
  program_ = command_line();
  begun_ = std::chrono::steady_clock::now();
}

void LiveFile::keep(CallSink& sink) noexcept {
  if (!file_.is_open()) return;
  const bool runs = start_own_thread([this, &sink] {
    Guard::stay_inside();
    while (!over_.load(std::memory_order_acquire)) {
      try {
        write(sink, /*is_last=*/false);
      } catch (...) {  // memory is short: the next time
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  });
  if (!runs) over_ = true;
}

void LiveFile::end(CallSink& sink) noexcept try {
  if (file_.is_open() && !over_.exchange(true)) write(sink, /*is_last=*/true);
} catch (...) {
}

void LiveFile::write(CallSink& sink, bool is_last) {
  const SinkReport report = sink.report();
  const std::lock_guard lock(mutex_);
  if (!file_.is_ours()) return;  // the program has closed all descriptors
  nlohmann::ordered_json json;
  json["nimble_live"] = 1;  // identifies the file as ours
  json["pid"] = ::getpid();
  json["program"] = program_;
  json["mode"] = mode_;
  json["number"] = ++number_;
  json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  json["phase"] = name(report.phase);
  json["reason"] = report.reason.substr(0, kMostText);
#define NIMBLE_COUNTER(name, meaning) json[#name] = report.counters.name;
#include "nimble/internal/counters.def"
  json["ended"] = is_last;
  json["end"] = number_;
  std::string text = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() >= kBytes) return;
  text.resize(kBytes - 1, ' ');
  text.push_back('\n');
  if (::lseek(file_.number(), 0, SEEK_SET) == 0) file_.write(text.data(), text.size());
}

}  // namespace nimble::shim
