#include "shim/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "shim/options.h"

namespace nimble::shim {

spdlog::logger& log() {
  static spdlog::logger* const logger = [] {
    // Not registered with spdlog, never destroyed: lines may come while the process ends.
    auto* created = new spdlog::logger("nimble", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("nimble: %l: %v");
    const std::string level = read_options().log;
    const auto parsed = spdlog::level::from_str(level);
    const bool known = parsed != spdlog::level::off || level == "off";
    created->set_level(known ? parsed : spdlog::level::info);
    if (!known) created->warn("NIMBLE_LOG={} is not one of off, error, warn, info, debug: using info", level);
    return created;
  }();
  return *logger;
}

}  // namespace nimble::shim
