#include "analyzer/command/progress.h"

#include <unistd.h>

#include <cstdio>
#include <system_error>
#include <utility>

#include "analyzer/base/text.h"

namespace nimble::analyzer {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kBetween{200};

}  // namespace

Progress::Progress(std::string what, bool is_wanted) : what_(std::move(what)) {
  if (!is_wanted || !::isatty(STDERR_FILENO)) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Progress::at(std::string how_far) {
  const std::lock_guard lock(mutex_);
  how_far_ = std::move(how_far);
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return is_over_; };
  if (ends_.wait_for(lock, kPatience, is_over)) return;
  do {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_);
    const std::string text = what_ + ": " + (how_far_.empty() ? std::to_string(seconds.count()) + " s" : how_far_);
    std::fprintf(stderr, "\r%s\x1b[K", shortened(text, 78).c_str());
  } while (!ends_.wait_for(lock, kBetween, is_over));
  std::fputs("\r\x1b[K", stderr);
}

}  // namespace nimble::analyzer
