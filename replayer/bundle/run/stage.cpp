#include "replayer/bundle/run/stage.h"

namespace nimble::bundle {

Stage::Modules::Modules(LiveDriver& driver_, const BundleFiles& files) : driver(driver_) {
  for (std::uint32_t i = 0; i < files.bundle().images.size(); ++i) {
    CUmodule module = nullptr;
    LiveDriver::check(driver.cuModuleLoadData_(&module, files.image(i).c_str()),
                      ("for the code in " + files.bundle().images[i].file).c_str());
    all.push_back(module);
  }
}

Stage::Modules::~Modules() {
  for (const CUmodule module : all) driver.cuModuleUnload_(module);
}

Stage::Stage(const BundleFiles& files_, const RecordedStep& step_, int device)
    : files(files_),
      step(step_),
      payloads(files, step),
      driver(device),
      placement(driver, files.bundle()),
      modules_(driver, files),
      ops(driver, files, step, payloads, add_globals(), modules_.all),
      contents(driver, files, step, payloads, placement, ops) {}

const Placement& Stage::add_globals() {
  placement.add_globals(files.bundle(), modules_.all);
  return placement;
}

void Stage::measure(Run& run, std::uint32_t warmup, std::uint32_t repeat, WayResult& way) {
  const std::uint32_t runs = warmup + repeat;
  for (std::uint32_t number = 1; number <= runs; ++number) {
    const bool first = number == 1, last = number == runs;
    contents.restore(first);
    const RunTime time = run.run();
    way.difference = contents.compare(first || last, run);
    way.runs = number;
    if (way.difference) break;
    if (number > warmup) way.times.push_back(time);
  }
  if (!way.difference) return;
  if (const std::string what = contents.leads_elsewhere(run); !what.empty())
    throw Refused("memory differs at the end of run " + std::to_string(way.runs) + ", but " + what +
                  " holds an address of memory that the step allocates, which moves under a schedule: what a "
                  "kernel finds there is unknown");
}

}  // namespace nimble::bundle
