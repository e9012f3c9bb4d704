#include "shim/live/live_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/process/own_thread.h"
#include "shim/driver/guard.h"
#include "shim/process/command_line.h"
#include "shim/process/log.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostText = 200;  // of a command line or a reason: each byte may take six
// How each text begins, so that it can be changed in place.
constexpr std::string_view kBegin = R"({"nimble_live":1,"ended":)", kEnded = "true ";

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

}  // namespace

void LiveFile::open(const std::string& path, std::string mode) {
  const auto refuse = [&](const std::string& why) {
    file_.close();
    log(LogLevel::warning, "NIMBLE_LIVE: " + path + " " + why + ": it is not kept");
  };
  if (has_few_descriptors())
    return refuse("would take one of the few descriptors that RLIMIT_NOFILE leaves the program");
  FileFacts found;
  if (const char* const why = why_not_replaced(path, FileKind::live, found)) return refuse(why);
  if (const int error = file_.open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK))
    return refuse(std::string("cannot be written: ") + std::strerror(error));
  if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0)
    return refuse("is kept by another process (%p in a name is its id)");
  mode_ = std::move(mode);
  program_ = command_line().substr(0, kMostText);
  begun_ = std::chrono::steady_clock::now();
  if (!write({}, /*is_last=*/false)) return refuse("cannot be written");
  if (::ftruncate(file_.number(), kBytes) != 0 && errno != EINVAL) refuse("cannot be written");
}

void LiveFile::keep(CallSink& sink) noexcept {
  if (!file_.is_open()) return;
  const bool runs = start_own_thread([this, &sink] {
    Guard::stay_inside();
    bool is_kept = true;
    while (is_kept && !over_.load(std::memory_order_acquire)) {
      try {
        is_kept = write(sink.report(), /*is_last=*/false);
        if (!is_kept) log(LogLevel::warning, "NIMBLE_LIVE: the file cannot be written any more, and is not kept");
      } catch (...) {  // memory is short: the next time
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  });
  if (runs) return;
  over_ = true;
  try {
    log(LogLevel::warning, "NIMBLE_LIVE: no thread can be started: the file is not kept");
  } catch (...) {
  }
}

void LiveFile::end(CallSink& sink) noexcept try {
  if (file_.is_open() && !over_.exchange(true)) write(sink.report(), /*is_last=*/true);
} catch (...) {
}

void LiveFile::end_interrupted() noexcept {
  if (over_.exchange(true) || !mutex_.try_lock()) return;
  put(kEnded.data(), kEnded.size(), kBegin.size());
  mutex_.unlock();
}

// False if the program has closed the file, or it cannot be written.
bool LiveFile::write(const SinkReport& report, bool is_last) {
  const std::lock_guard lock(mutex_);
  if (!is_last && over_.load(std::memory_order_acquire)) return true;  // the last word is there
  nlohmann::ordered_json json;
  json["number"] = ++number_;
  json["pid"] = ::getpid();
  json["program"] = program_;
  json["mode"] = mode_;
  json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  json["phase"] = name(report.phase);
  json["reason"] = report.reason.substr(0, kMostText);
#define NIMBLE_COUNTER(name, meaning) json[#name] = report.counters.name;
#include "nimble/internal/counters.def"
  json["end"] = number_;
  const std::string rest = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string text(kBegin);
  text.append(is_last ? kEnded : "false").append(",").append(rest, 1);
  text.resize(kBytes - 1, ' ');
  text.push_back('\n');
  return put(text.data(), text.size(), 0);
}

bool LiveFile::put(const void* data, std::size_t bytes, std::size_t at) noexcept {
  if (!file_.is_ours()) return false;
  QuietSignals quiet;
  const ssize_t written = ::pwrite(file_.number(), data, bytes, static_cast<off_t>(at));
  if (written < 0) quiet.failed(errno);
  return written == static_cast<ssize_t>(bytes);
}

}  // namespace nimble::shim
