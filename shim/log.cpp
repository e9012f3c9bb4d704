#include "shim/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "shim/options.h"

namespace nimble::shim {

namespace {

spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    // Not registered with spdlog, never destroyed: lines may come while the process ends.
    auto* created = new spdlog::logger("nimble", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("nimble: %l: %v");
    const std::string level = read_options().log;
    const auto parsed = spdlog::level::from_str(level);
    const bool known = parsed != spdlog::level::off || level == "off";
    created->set_level(known ? parsed : spdlog::level::info);
    if (!known) created->warn("NIMBLE_LOG={} is not one of off, error, warn, info: using info", level);
    return created;
  }();
  return *instance;
}

}  // namespace

void log(LogLevel level, const std::string& text) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn, spdlog::level::info};
  logger().log(kLevels[static_cast<int>(level)], text);
}

}  // namespace nimble::shim
