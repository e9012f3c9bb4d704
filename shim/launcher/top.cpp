#include "shim/launcher/top.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace nimble::launcher {
namespace {

constexpr long kLongSilence = 5;  // seconds in which a program that keeps its file would have written

struct Look {
  pid_t pid = 0;
  std::string mode, phase, reason;
  double seconds = 0;  // since the program's first call of the driver
  std::uint64_t steps = 0, passed = 0, graphs = 0, diverged = 0, marked = 0, audits_failed = 0;
  bool ended = false;
};

// Nothing where the file is none of these, or was being written: its ends then differ.
std::optional<Look> look_at(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("nimble_live", 0) != 1) return std::nullopt;
  try {
    if (json.at("number") != json.at("end")) return std::nullopt;
    Look look;
    look.pid = json.at("pid").get<pid_t>();
    look.mode = json.at("mode").get<std::string>();
    look.phase = json.at("phase").get<std::string>();
    look.reason = json.at("reason").get<std::string>();
    look.seconds = json.at("seconds").get<double>();
    look.steps = json.at("steps_replayed").get<std::uint64_t>();
    look.passed = json.at("steps_passed_through").get<std::uint64_t>();
    look.graphs = json.at("graph_launches").get<std::uint64_t>();
    look.diverged = json.at("divergences").get<std::uint64_t>();
    look.marked = json.at("steps_marked").get<std::uint64_t>();
    look.audits_failed = json.at("audits_failed").get<std::uint64_t>();
    look.ended = json.at("ended").get<bool>();
    return look;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<Look> try_to_look_at(const std::string& path) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    if (std::optional<Look> look = look_at(path)) return look;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
}

bool is_running(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

std::string a_second(std::uint64_t now, std::uint64_t before, double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds > 0 ? static_cast<double>(now - before) / seconds : 0.0);
  return text;
}

// `before`: an earlier look, or none, as at the program's begin.
std::string line_of(const Look& now, const Look& before) {
  const double seconds = now.seconds - before.seconds;
  char time[32];
  std::snprintf(time, sizeof time, "%8.1f s  ", now.seconds);
  std::string line = time + now.mode + ": " + now.phase;
  if (now.steps > 0 || now.phase == "replaying")
    line += "  " + a_second(now.steps, before.steps, seconds) + " steps/s replayed, " + std::to_string(now.passed) +
            " passed through, " + std::to_string(now.diverged) + " diverged";
  if (now.graphs > 0) line += "  " + a_second(now.graphs, before.graphs, seconds) + " graphs/s";
  if (now.marked > 0) line += "  " + a_second(now.marked, before.marked, seconds) + " marked steps/s";
  if (now.audits_failed > 0) line += "  " + std::to_string(now.audits_failed) + " audits FAILED";
  if (!now.reason.empty()) line += "  (" + now.reason + ")";
  return line;
}

}  // namespace

int show_live(const TopOptions& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  using Clock = std::chrono::steady_clock;
  Look before;
  bool any = false;
  Clock::time_point heard = Clock::now();
  for (;;) {
    const std::optional<Look> now = try_to_look_at(options.path);
    if (!now) {
      std::cerr << "nimble: " << options.path
                << ": no program of Nimble's keeps this file; run one with: nimble run --live " << options.path
                << " -- program\n";
      return 2;
    }
    const bool is_over = now->ended || !is_running(now->pid);
    const bool is_same = any && now->pid == before.pid;  // else another process has taken over the file
    const bool is_news = !is_same || now->seconds > before.seconds;
    if (is_news) heard = Clock::now();
    const auto silence = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - heard).count();
    if (is_news || is_over || silence >= kLongSilence) {
      std::cout << (is_terminal && any ? "\r\033[K" : "")
                << line_of(*now, is_news && is_same && !is_over ? before : Look())
                << (is_over ? now->ended ? "  ended" : "  gone" : "");
      if (!is_news && !is_over) std::cout << "  no news for " << silence << " s";
      if (!is_terminal || is_over || options.once) std::cout << "\n";
      std::cout.flush();
      before = *now;
      any = true;
    }
    if (is_over || options.once) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  }
}

}  // namespace nimble::launcher
